//! Where the server of a bucket is.

use std::net::{SocketAddr, ToSocketAddrs};

/// Addresses of a server that are tried.
const MAX_ADDRESSES: usize = 4;

/// Where a server is: of `https://store.example/s3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerEndpoint {
    /// `http://HOST[:PORT][/PATH]` or the same with `https`.
    pub(super) url: String,
    pub(super) is_tls: bool,
    /// `HOST` as the URL has it.
    pub(super) host: String,
    port: u16,
}

impl ServerEndpoint {
    /// Parses the URL of a server, which has no user and no query.
    pub(super) fn parse(endpoint: &str) -> Result<Self, String> {
        let url = endpoint.trim_end_matches('/');
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err("an endpoint begins with https:// or http://".into()),
        };
        let host = rest.split('/').next().unwrap_or(rest);
        if host.is_empty()
            || host.contains('@')
            || rest.contains(|c: char| matches!(c, '?' | '#' | ' ' | '\\') || c.is_control())
        {
            return Err("an endpoint is https://HOST:PORT, without a user or a query".into());
        }
        let stated =
            host.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = stated.unwrap_or((host, if is_tls { 443 } else { 80 }));
        Ok(Self { url: url.to_owned(), is_tls, host: host.to_owned(), port })
    }

    /// The server as requests name it: without the usual port.
    pub(super) fn authority(&self) -> String {
        match (self.is_tls, self.port) {
            (false, 80) | (true, 443) => self.host.clone(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    /// Path of the URL, with the slash before it; empty if it has none.
    pub(super) fn path(&self) -> &str {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default()
    }

    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let found = format!("{}:{}", self.host, self.port).to_socket_addrs();
        let found =
            found.map_err(|error| format!("the host of {} is not found: {error}", self.url));
        Ok(found?.take(MAX_ADDRESSES).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_scheme_a_host_and_a_port() {
        let of = |text: &str| ServerEndpoint::parse(text).map(|endpoint| endpoint.authority());
        assert_eq!(of("http://a:9000/"), Ok("a:9000".into()));
        assert_eq!(of("http://a.b/s3"), Ok("a.b".into()));
        assert_eq!(of("http://[::1]:80"), Ok("[::1]".into()));
        assert_eq!(of("https://a:443/s3"), Ok("a".into()));
        assert_eq!(of("https://a:80"), Ok("a:80".into()));
        assert_eq!(ServerEndpoint::parse("https://a/s3").unwrap().port, 443);
        for wrong in
            ["a:9000", "http://", "http://me:pw@a", "http://a?x", "http://a\\b", "http://a\nb"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
