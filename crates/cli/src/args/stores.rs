//! Places for the files of suite storage.

use std::path::PathBuf;

use clap::Parser;
use pathline_runner::StorePlaces;
use pathline_schema::Bytes;

use super::{FILES, size};

/// Where suite storage has its files.
#[derive(Debug, Clone, Default, Parser)]
#[command(next_help_heading = FILES)]
pub(crate) struct StoreArgs {
    /// Measure I/O in this folder, file, block device or s3://BUCKET/PREFIX; repeatable.
    ///
    /// For suite storage. In a folder or bucket, files or objects are made and removed again; a file or
    /// block device is only read. Several are measured alone and at the same time. Buckets need
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment.
    #[arg(long, value_name = "PATH", conflicts_with = "machine")]
    pub(crate) store: Vec<PathBuf>,
    /// Size of each file of --store; by default 1 GiB.
    ///
    /// By default also at most a quarter of what is free.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) span: Option<Bytes>,
    /// Destroy what is in the files and devices of --store: write to them.
    #[arg(long, requires = "store")]
    pub(crate) overwrite: bool,
    /// Server of buckets, such as http://127.0.0.1:9000; by default AWS_ENDPOINT_URL.
    ///
    /// For https://, SSL_CERT_FILE names an authority that the system does not trust.
    #[arg(long, value_name = "URL", requires = "store", hide = true)]
    pub(crate) s3_endpoint: Option<String>,
}

impl StoreArgs {
    /// The same for the crate that opens the machine.
    pub(crate) fn places(&self) -> StorePlaces {
        let Self { store, span, overwrite, s3_endpoint } = self.clone();
        StorePlaces { paths: store, span, overwrite, endpoint: s3_endpoint }
    }

    /// Fails if no place is there; one of several costs its own cases.
    pub(super) fn check_places(&self) -> anyhow::Result<()> {
        let is_bucket = |path: &&PathBuf| path.to_string_lossy().starts_with("s3:");
        let missing = |path: &&PathBuf| !is_bucket(path) && !path.exists();
        match self.store.first().filter(|_| self.store.iter().all(|path| missing(&path))) {
            Some(path) => {
                let path = path.display();
                anyhow::bail!(
                    "--store {path}: there is no such folder, file or device; `mkdir -p {path}` makes a folder"
                )
            }
            None => Ok(()),
        }
    }

    /// Fails if a server or bucket is written so that what it holds might be a key. The error does not repeat
    /// it.
    pub(super) fn check_names(&self) -> anyhow::Result<()> {
        if self.s3_endpoint.as_deref().is_some_and(|url| !is_endpoint(url)) {
            anyhow::bail!(
                "--s3-endpoint is not http://HOST[:PORT][/PATH]; keys belong into AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY"
            );
        }
        if self.store.iter().any(|path| is_odd_bucket(&path.to_string_lossy())) {
            anyhow::bail!(
                "--store names a bucket as s3://BUCKET/PREFIX, in small letters and without keys"
            );
        }
        Ok(())
    }
}

/// Whether a text is `http://HOST[:PORT][/PATH]`, or the same with https.
fn is_endpoint(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._~/:[]%".contains(c);
    let host = rest.split('/').next().unwrap_or_default();
    let port = match host.rsplit_once(':') {
        Some((name, _)) if name.starts_with('[') != name.ends_with(']') => "",
        Some((name, port)) if !name.contains(':') || name.starts_with('[') => port,
        Some(_) => return false,
        None => "",
    };
    ["http", "https"].contains(&scheme)
        && !host.is_empty()
        && rest.chars().all(fits)
        && port.bytes().all(|digit| digit.is_ascii_digit())
}

/// Whether a path is a bucket with its scheme or name miswritten.
fn is_odd_bucket(path: &str) -> bool {
    let is_s3 = path.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("s3:"));
    let bucket = path.strip_prefix("s3://").and_then(|rest| rest.split('/').next());
    is_s3 && bucket.is_none_or(|bucket| bucket.contains([':', '@', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_buckets_that_may_hold_keys_are_refused() {
        for url in
            ["http://127.0.0.1:9000", "https://s3.example.org/a/b", "http://[::1]:80/x", "http://h"]
        {
            assert!(is_endpoint(url), "{url}");
        }
        for url in [
            "john.doe:KEY@h:1",
            "http://u:a'KEY@h",
            "http://u:a KEY@h",
            "http://u:1/KEY@h",
            "//u:KEY@h",
            "h:1/p?X-Amz-Signature=KEY",
            "http://u:KEY",
            "http://",
            "s3://h",
            "http://a:b:1",
        ] {
            assert!(!is_endpoint(url), "{url}");
        }
        for path in ["S3://AK:KEY@b/p", "s3:/AK:KEY@b", "s3://AK:KEY@b/p", "s3:KEY", "S3://b"] {
            assert!(is_odd_bucket(path), "{path}");
        }
        for path in ["s3://b/p", "s3://b", "/data/s3:x", "s3", "./s3:/x"] {
            assert!(!is_odd_bucket(path), "{path}");
        }
    }
}
