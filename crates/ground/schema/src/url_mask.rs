//! Secrets of URLs, kept out of records.

use std::borrow::Cow;

/// What stands for a secret.
const MASK: &str = "***";

/// The text with the users, passwords, queries and fragments of its URLs masked, also `user:password@host` without
/// a scheme: `http://***@host/path?***`. Applied again it changes nothing.
pub fn mask_urls(text: &str) -> Cow<'_, str> {
    if !text.contains("://") && !text.contains('@') {
        return Cow::Borrowed(text);
    }
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>');
    let mut masked = String::with_capacity(text.len());
    for word in text.split_inclusive(ends) {
        let url = word.trim_end_matches(ends);
        mask_word(url, &mut masked);
        masked.push_str(word.strip_prefix(url).unwrap_or_default());
    }
    Cow::Owned(masked)
}

fn mask_word(word: &str, masked: &mut String) {
    let Some((scheme, rest)) = word.split_once("://") else {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if !option.contains(':') => (format!("{option}="), value),
            _ => (String::new(), word),
        };
        let is_user = |user: &str| !user.is_empty() && !user.contains(['/', '.', '@', '[', ']']);
        match value
            .split_once(':')
            .filter(|(user, _)| is_user(user))
            .and_then(|(_, p)| p.rsplit_once('@'))
        {
            Some((_, host)) => masked.push_str(&format!("{option}{MASK}@{host}")),
            None => masked.push_str(word),
        }
        return;
    };
    masked.push_str(&format!("{scheme}://"));
    let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(path);
    let is_host = authority.rsplit_once(':').is_none_or(|(host, port)| {
        host.starts_with('[') || port.bytes().all(|b| b.is_ascii_digit())
    });
    // What looks like a port can be a password with a slash.
    let later = after.split(['?', '#']).next().and_then(|path| path.rfind('@'));
    let later = later.filter(|_| authority.contains(':') && !after.starts_with("//"));
    let rest = match (later, authority.rfind('@')) {
        (Some(at), _) => {
            masked.push_str(MASK);
            after.get(at..).unwrap_or_default()
        }
        (None, Some(at)) => {
            masked.push_str(MASK);
            rest.get(at..).unwrap_or_default()
        }
        (None, None) if is_host => rest,
        // A key without a host.
        (None, None) => {
            masked.push_str(MASK);
            after
        }
    };
    let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    // A list may have several URLs in a word.
    match path.contains("://") {
        true => mask_word(path, masked),
        false => masked.push_str(path),
    }
    if let Some(mark) = query.chars().next() {
        masked.push_str(&format!("{mark}{MASK}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_urls_are_masked_and_the_rest_stays() {
        for (text, masked) in [
            ("http://user:SECRET@host:9000/a", "http://***@host:9000/a"),
            ("--s3-endpoint=http://SECRET@host", "--s3-endpoint=http://***@host"),
            ("user:SECRET@host:9000", "***@host:9000"),
            ("--s3-endpoint=user:SE@CRET@host", "--s3-endpoint=***@host"),
            ("http://user:SEC/RET@host/a", "http://***@host/a"),
            ("http://user:SEC@RET@host/a", "http://***@host/a"),
            ("http://user:1/SECRET@host/a", "http://***@host/a"),
            ("s3://AKEY:SECRET/prefix", "s3://***/prefix"),
            ("s3://AKEY:SECRET@bucket/p", "s3://***@bucket/p"),
            ("https://h/a?X-Amz-Signature=SECRET&b=1#c", "https://h/a?***"),
            ("https://h#token=SECRET", "https://h#***"),
            ("curl 'http://u:SECRET@h/x' -o y", "curl 'http://***@h/x' -o y"),
            ("http://u:SECRET@a,http://u:SECRET@b/c", "http://***@a,http://***@b/c"),
            ("proxy=socks5://u:SECRET@[::1]:80", "proxy=socks5://***@[::1]:80"),
        ] {
            assert_eq!(mask_urls(text), masked);
            assert_eq!(mask_urls(masked), masked);
        }
        for kept in [
            "http://127.0.0.1:9000/s3",
            "http://[::1]:80",
            "s3://data/a/b",
            "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB",
            "/data/a@b:c",
            "mlx5_0:1,mlx5_1:1",
            "user@host:/path",
            "cases.txt:3:dma@gpu0",
        ] {
            assert_eq!(mask_urls(kept), kept);
        }
    }
}
