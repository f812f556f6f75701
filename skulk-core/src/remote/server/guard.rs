//! Who may ask? Those who know the key.

use hyper::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Compares keys by their hashes, so that the time it takes tells neither characters nor the length.
pub(super) struct Guard(Option<[u8; 32]>);

const SCHEME: &[u8] = b"Bearer ";

fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

impl Guard {
    /// Lets those pass who know this key; all, where there is none.
    pub(super) fn new(key: Option<&str>) -> Self {
        Self(key.map(|key| hash(key.as_bytes())))
    }

    /// Whether a request with these headers may pass.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(expected) = &self.0 else { return true };
        let given = headers.get(AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
        let (scheme, key) = given.split_at(given.len().min(SCHEME.len()));
        let same: bool = expected.ct_eq(&hash(key)).into();
        scheme.eq_ignore_ascii_case(SCHEME) && same
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn admits(key: Option<&str>, given: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(given) = given {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(given).unwrap());
        }
        Guard::new(key).admits(&headers)
    }

    #[test]
    fn who_knows_the_key_passes() {
        assert!(admits(None, None) && admits(None, Some("Bearer x")));
        assert!(
            admits(Some("secret"), Some("Bearer secret")) && admits(Some("secret"), Some("bearer secret"))
        );
        for given in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer secre",
            "Bearer secret2",
            "secret",
            "Basic secret",
            "Bearer  secret",
        ] {
            assert!(!admits(Some("secret"), Some(given)), "{given}");
        }
        assert!(!admits(Some("secret"), None));
    }
}
