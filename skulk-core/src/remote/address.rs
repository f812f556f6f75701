//! Where is a peer? Addresses as people write them.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hyper::Uri;

use crate::error::{Error, Result};

/// Where a server is: `http://host:port`, `https://host:port` or, on the same machine, `unix:///path/of/socket`. Servers of
/// experts that speak gRPC are at `grpc://host:port`, encrypted at `grpcs://host:port`.
///
/// ```
/// use skulk::remote::Address;
/// let address: Address = "http://192.168.7.4:8080".parse()?;
/// assert_eq!(address.to_string(), "http://192.168.7.4:8080");
/// assert!("ftp://shed".parse::<Address>().is_err());
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address(Place);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Tcp { scheme: Scheme, host: String, port: u16 },
    Unix(PathBuf),
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    Http,
    Https,
    Grpc,
    Grpcs,
}

impl Scheme {
    const ALL: [Self; 4] = [Self::Http, Self::Https, Self::Grpc, Self::Grpcs];

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
        }
    }

    pub(super) fn is_encrypted(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }

    pub(super) fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::Grpcs)
    }
}

impl Address {
    pub(super) fn of(place: Place) -> Self {
        Self(place)
    }

    pub(super) fn place(&self) -> &Place {
        &self.0
    }

    /// Whether what crosses is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(&self.0, Place::Tcp { scheme, .. } if scheme.is_encrypted())
    }

    /// Whether its server is asked in gRPC.
    pub(super) fn is_grpc(&self) -> bool {
        matches!(&self.0, Place::Tcp { scheme, .. } if scheme.is_grpc())
    }

    /// Whether only this machine can reach it, as far as the address tells.
    pub fn is_local(&self) -> bool {
        match &self.0 {
            Place::Unix(_) => true,
            Place::Tcp { host, .. } => {
                host == "localhost" || bare(host).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

/// A host without the brackets around an address of IPv6.
pub(super) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// An address as an error has it: without a user's name and password.
fn shown(text: &str) -> Cow<'_, str> {
    let Some((front, behind)) = text.rsplit_once('@') else { return text.into() };
    match front.split_once("//") {
        Some((scheme, _)) => format!("{scheme}//…@{behind}").into(),
        None => format!("…@{behind}").into(),
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |expected: &str| {
            Err(Error::argument("address", format!("expected {expected}, found `{}`", shown(text)))
                .with_hint("write http://host:port, https://host:port, grpc://host:port, grpcs://host:port or unix:///path"))
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return match Path::new(path) {
                path if path.is_absolute() => Ok(Self(Place::Unix(path.to_owned()))),
                _ => invalid("an absolute path behind unix://"),
            };
        }
        let Ok(uri) = text.parse::<Uri>() else { return invalid("an address") };
        let scheme = Scheme::ALL.into_iter().find(|scheme| uri.scheme_str() == Some(scheme.name()));
        let Some(scheme) = scheme else { return invalid("http, https, grpc, grpcs or unix") };
        let Some(authority) = uri.authority() else { return invalid("a host") };
        if authority.as_str().contains('@') {
            return invalid("no user in it: keys are given as options");
        }
        if authority.host().is_empty() || authority.as_str().ends_with(':') {
            return invalid("a host, and its port");
        }
        // A fragment is dropped where addresses are read.
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('#') {
            return invalid("no path behind the host");
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => {
                if scheme.is_encrypted() {
                    443
                } else {
                    80
                }
            }
            None => return invalid("a port up to 65535"),
        };
        Ok(Self(Place::Tcp { scheme, host: authority.host().to_owned(), port }))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Tcp { scheme, host, port } => write!(f, "{}://{host}:{port}", scheme.name()),
            Place::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "http://a:80",
            "https://shed.example:443",
            "http://[::1]:7000",
            "grpc://a:1",
            "grpcs://a:443",
            "unix:///run/s.sock",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for (text, meant) in
            [("http://a", "http://a:80"), ("https://a/", "https://a:443"), ("grpc://a", "grpc://a:80")]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), meant);
        }
        for text in [
            "",
            "a",
            "a:80",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:",
            "http://a:99999",
            "http://a/b",
            "http://u:p@a",
            "http://a?x",
            "http://a#x",
            "http://a:80/#x",
            "unix://x",
            "unix:///",
            "http://a b",
        ] {
            match text.parse::<Address>() {
                Err(error) => assert!(error.to_string().contains("expected"), "{error}"),
                Ok(address) => assert_eq!(text, "unix:///", "{address}"),
            }
        }
    }

    #[test]
    fn errors_do_not_say_passwords() {
        for text in ["http://u:secret@a", "http://u:secret@a b", "u:secret@a", "http://u:se@secret@a/"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(!error.contains("secret") && !error.contains("se@"), "{error}");
            assert!(error.contains("…@a"), "{error}");
        }
    }

    #[test]
    fn what_is_local_says_so() {
        let local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(local("http://127.0.0.1:1") && local("http://[::1]:1") && local("unix:///s"));
        assert!(local("http://localhost:1") && !local("http://10.0.0.1:1") && !local("http://shed:1"));
    }
}
