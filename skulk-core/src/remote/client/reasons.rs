//! Why is there no answer? What went wrong below, as an error that says what to do about it.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error as Tls};

use super::connection::Failed;
use super::known::failed;
use super::options::ConnectOptions;
use super::waiting::Ended;
use crate::error::{Error, ErrorKind};
use crate::remote::address::{Address, Place};

impl Failed {
    pub(super) fn into_error(self, address: &Address, what: &str) -> Error {
        let source = match self {
            Self::Large => {
                let message = "expected an answer of the size of what was asked, found a larger one";
                return failed(address, message.into());
            }
            Self::Lost(source) => source,
        };
        // A server may refuse a certificate when the first answer is read.
        let of_tls = chain(&*source).find_map(|error| error.downcast_ref()).map(of_tls);
        if let Some(hint) = of_tls {
            return failed(address, format!("the server {what}: its TLS is not what was expected"))
                .with_hint(hint)
                .with_source(source);
        }
        let is_plain = !address.is_encrypted() && matches!(address.place(), Place::Tcp { .. });
        let hint = match is_plain && chain(&*source).any(is_no_http) {
            true => "see what is at its port; a server that encrypts is asked at https:// or grpcs://",
            false => "see that it runs and can be reached, or plan without it",
        };
        Error::new(ErrorKind::PeerLost, format!("the server {what}"))
            .with("peer", address)
            .with_hint(hint)
            .with_source(source)
    }
}

impl Ended {
    pub(super) fn into_error(self, address: &Address, what: &str) -> Error {
        match self {
            Self::Caller(error) => error,
            Self::Late => Error::new(ErrorKind::PeerLost, format!("the server took too long {what}"))
                .with("peer", address)
                .with_hint("give it more time with the option timeout, or plan without it"),
        }
    }

    /// The same of connecting, which has a time of its own.
    pub(super) fn in_reaching(self, address: &Address, options: &ConnectOptions) -> Error {
        match self {
            Self::Caller(error) => error,
            Self::Late => {
                let message = format!("the server was not reached within {:?}", options.connect_timeout);
                Error::new(ErrorKind::PeerLost, message)
                    .with("peer", address)
                    .with_hint("see that it runs and can be reached, or plan without it")
            }
        }
    }
}

/// An error, and what caused it.
fn chain<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // What an error of the system's holds is not its source.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        held.map(|held| held as &(dyn StdError + 'static)).or_else(|| error.source())
    })
}

/// What came is no HTTP.
fn is_no_http(error: &(dyn StdError + 'static)) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)
        || error.to_string().contains("frame with invalid size")
}

/// What is to be done where no encrypted stream can be agreed upon.
fn of_tls(error: &Tls) -> &'static str {
    match error {
        Tls::InvalidCertificate(why) => match why {
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. } => {
                "renew the server's certificate, and see that this machine's clock is right"
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "call the server by a name or an address that its certificate has"
            }
            // The verifier's own error, which is none of rustls.
            other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
                "give the server a certificate that is not an authority's own, but signed by it"
            }
            _ => "trust its certificate's authority with the option roots",
        },
        Tls::InvalidMessage(_) => {
            "see what is at its port; a server that does not encrypt is asked at http:// or grpc://"
        }
        Tls::AlertReceived(
            Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            | Alert::HandshakeFailure,
        ) => "show an identity that the server trusts with the option identity",
        _ => "see that both sides speak TLS 1.2 or 1.3, and with certificates that the other side trusts",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InvalidMessage, OtherError};

    use super::*;

    fn hint(tls: Tls) -> String {
        let address = "https://shed:1".parse().unwrap();
        // As streams report it.
        let lost = Failed::from(io::Error::new(io::ErrorKind::InvalidData, tls));
        let error = lost.into_error(&address, "was lost");
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
        error.hint().unwrap_or_default().to_owned()
    }

    #[test]
    fn what_tls_reports_says_what_to_do() {
        #[derive(Debug, thiserror::Error)]
        #[error("another")]
        struct CaUsedAsEndEntity;
        let other = Certificate::Other(OtherError(Arc::new(CaUsedAsEndEntity)));
        for (tls, words) in [
            (Tls::InvalidCertificate(Certificate::Expired), "renew"),
            (Tls::InvalidCertificate(Certificate::NotValidForName), "name"),
            (Tls::InvalidCertificate(Certificate::UnknownIssuer), "option roots"),
            (Tls::InvalidCertificate(other), "signed by it"),
            (Tls::InvalidMessage(InvalidMessage::InvalidContentType), "http://"),
            (Tls::AlertReceived(Alert::CertificateRequired), "option identity"),
            (Tls::AlertReceived(Alert::ProtocolVersion), "TLS 1.2"),
        ] {
            let found = hint(tls);
            assert!(found.contains(words), "{words}: {found}");
        }
    }

    #[test]
    fn who_was_not_reached_in_time_is_not_given_more_time_to_answer() {
        let address = "http://shed:1".parse().unwrap();
        let error = Ended::Late.in_reaching(&address, &ConnectOptions::default());
        assert!(error.message().contains("within 5s"), "{error}");
        assert!(!error.hint().unwrap_or_default().contains("option"), "{error}");
    }
}
