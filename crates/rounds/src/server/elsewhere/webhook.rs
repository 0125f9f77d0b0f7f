//! The signature of a webhook: by it a receiver knows that a notification comes from this server, and is not an old one.
//!
//! It is that of [Standard Webhooks](https://www.standardwebhooks.com): HMAC-SHA-256 over the id, the time in seconds and the
//! body, in three headers. Its libraries verify what is signed here.

use std::{fmt, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::hmac;
use zeroize::Zeroizing;

use crate::shared::clock::Timestamp;

/// The shortest and the longest secret in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The longest value of a header, and the largest number of signatures in one.
const HEADER_BYTES: usize = 1024;
const SIGNATURES: usize = 8;

/// The secret that the server and the receiver of a webhook share.
///
/// A receiver verifies the three headers with the body as it came, before it reads any of it:
///
/// ```
/// # use rounds::{elsewhere::{WebhookError, WebhookKey, WebhookSignature}, time::Timestamp};
/// # fn receive(key: &WebhookKey, header: impl Fn(&str) -> String, body: &[u8], now: Timestamp) -> Result<(), WebhookError> {
/// let signature = WebhookSignature {
///     id: header(WebhookSignature::ID),
///     timestamp: header(WebhookSignature::TIMESTAMP),
///     signature: header(WebhookSignature::SIGNATURE),
/// };
/// key.verify(&signature, body, now)?; // then: was `signature.id` handled before?
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WebhookKey(hmac::Key);

impl WebhookKey {
    /// How far the time of a signature may be from now: five minutes, in both directions.
    pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

    /// The key of a secret of 24 to 64 random bytes.
    ///
    /// # Errors
    ///
    /// [`WebhookKeyError`] if it is shorter or longer.
    pub fn from_bytes(secret: &[u8]) -> Result<Self, WebhookKeyError> {
        match SECRET_BYTES.contains(&secret.len()) {
            true => Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret))),
            false => Err(WebhookKeyError::Length { bytes: secret.len() }),
        }
    }

    /// The key of a secret as text: `whsec_` and the bytes in base64. White space around it is ignored.
    ///
    /// # Errors
    ///
    /// [`WebhookKeyError`] if it is not such a text.
    pub fn from_text(secret: &str) -> Result<Self, WebhookKeyError> {
        let secret = secret.trim().strip_prefix("whsec_").ok_or(WebhookKeyError::Text)?;
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(secret).map_err(|_| WebhookKeyError::Text)?);
        Self::from_bytes(&bytes)
    }

    /// Signs a body that is sent at this time.
    pub fn sign(&self, id: &str, at: Timestamp, body: &[u8]) -> WebhookSignature {
        let timestamp = (at.as_millis() / 1000).to_string();
        let tag = hmac::sign(&self.0, &signed(id, &timestamp, body));
        let signature = format!("v1,{}", BASE64_STANDARD.encode(tag));
        WebhookSignature { id: id.to_owned(), timestamp, signature }
    }

    /// Verifies a signature that has arrived now, in constant time. The header may have several, of which one has to be right,
    /// so that a secret can be replaced.
    ///
    /// A signature that is not older than [`TOLERANCE`](Self::TOLERANCE) is accepted each time it arrives: keep the ids for
    /// that long, and ignore a body whose id is known.
    ///
    /// # Errors
    ///
    /// [`WebhookError`] if the body must not be read.
    pub fn verify(&self, signature: &WebhookSignature, body: &[u8], now: Timestamp) -> Result<(), WebhookError> {
        let WebhookSignature { id, timestamp, signature } = signature;
        if [id, timestamp, signature].iter().any(|header| header.is_empty() || header.len() > HEADER_BYTES) {
            return Err(WebhookError::Headers);
        }
        let seconds: u64 = timestamp.parse().map_err(|_| WebhookError::Headers)?;
        let content = signed(id, timestamp, body);
        let is_right = |signature: &str| {
            let tag = signature.strip_prefix("v1,").and_then(|tag| BASE64_STANDARD.decode(tag).ok());
            tag.is_some_and(|tag| hmac::verify(&self.0, &content, &tag).is_ok())
        };
        if !signature.split(' ').take(SIGNATURES).any(is_right) {
            return Err(WebhookError::Signature);
        }
        let at = Timestamp::from_millis(seconds.saturating_mul(1000));
        match at.since(now).max(now.since(at)) <= Self::TOLERANCE {
            true => Ok(()),
            false => Err(WebhookError::Time),
        }
    }
}

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey")
    }
}

/// The headers that sign a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a receiver makes one of the three headers that the specification has")]
pub struct WebhookSignature {
    /// The value of the header `webhook-id`: the same for every attempt at one notification.
    pub id: String,
    /// The value of the header `webhook-timestamp`: when it was sent, in seconds since 1970.
    pub timestamp: String,
    /// The value of the header `webhook-signature`.
    pub signature: String,
}

impl WebhookSignature {
    /// The name of the header with the id.
    pub const ID: &str = "webhook-id";
    /// The name of the header with the time.
    pub const TIMESTAMP: &str = "webhook-timestamp";
    /// The name of the header with the signature.
    pub const SIGNATURE: &str = "webhook-signature";
}

/// Why a secret is not one for webhooks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookKeyError {
    /// The secret has another length.
    #[error("the secret of a webhook has {bytes} bytes: use 24 to 64 random bytes")]
    Length {
        /// The length.
        bytes: usize,
    },
    /// The text is not one of a secret.
    #[error("the secret of a webhook is not readable: write `whsec_` and 24 to 64 random bytes in base64")]
    Text,
}

/// Why a webhook is not accepted. Its body must not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// A header is missing, too long, or not of its form.
    #[error("a header of the webhook is missing or malformed")]
    Headers,
    /// No signature is right: another party has signed it, or the body was changed.
    #[error("the signature of the webhook is wrong: it was signed with another secret, or changed on its way")]
    Signature,
    /// The time is more than five minutes from now: the webhook may be an old one that is sent again.
    #[error("the webhook is too old, or its time is in the future: compare the clocks of the server and the receiver")]
    Time,
}

fn signed(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_614_265_330_000);
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn key() -> WebhookKey {
        WebhookKey::from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap()
    }

    #[test]
    fn the_example_of_the_specification_has_its_signature() {
        let signed = key().sign("msg_p5jXN8AQM9LWM0D4loKWxJek", NOW, BODY);
        assert_eq!(signed.timestamp, "1614265330");
        assert_eq!(signed.signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(key().verify(&signed, BODY, NOW), Ok(()));
    }

    #[test]
    fn one_right_signature_of_several_is_enough_and_nothing_else_is() {
        let signed = key().sign("id", NOW, BODY);
        let other = WebhookKey::from_bytes(&[7; 32]).unwrap().sign("id", NOW, BODY);
        let with = |signature: String| WebhookSignature { signature, ..signed.clone() };
        let verify = |signature: &WebhookSignature, body: &[u8]| key().verify(signature, body, NOW);
        assert_eq!(verify(&with(format!("{} {}", other.signature, signed.signature)), BODY), Ok(()));
        for wrong in [
            other.signature,
            signed.signature.replace("v1", "v2"),
            signed.signature[3..].to_owned(),
            "v1,".to_owned(),
            format!("{}{}", "v1,AAAA ".repeat(SIGNATURES), signed.signature),
        ] {
            assert_eq!(verify(&with(wrong.clone()), BODY), Err(WebhookError::Signature), "{wrong}");
        }
        assert_eq!(verify(&signed, b"{}"), Err(WebhookError::Signature));
        assert_eq!(
            verify(&WebhookSignature { id: "other".to_owned(), ..signed.clone() }, BODY),
            Err(WebhookError::Signature)
        );
        let later = WebhookSignature { timestamp: "1614265331".to_owned(), ..signed.clone() };
        assert_eq!(verify(&later, BODY), Err(WebhookError::Signature));
        for (id, timestamp) in [("", "1614265330"), ("id", ""), ("id", "soon"), ("id", "-1"), (&*"x".repeat(1025), "1")]
        {
            let headers = WebhookSignature { id: id.to_owned(), timestamp: timestamp.to_owned(), ..signed.clone() };
            assert_eq!(verify(&headers, BODY), Err(WebhookError::Headers), "{id} {timestamp}");
        }
    }

    #[test]
    fn an_old_one_is_refused_and_so_is_one_of_the_future() {
        let signed = key().sign("id", NOW, BODY);
        let at = |seconds: i64| Timestamp::from_millis(NOW.as_millis().saturating_add_signed(seconds * 1000));
        for (seconds, verified) in
            [(300, Ok(())), (-300, Ok(())), (301, Err(WebhookError::Time)), (-301, Err(WebhookError::Time))]
        {
            assert_eq!(key().verify(&signed, BODY, at(seconds)), verified, "{seconds}");
        }
    }

    #[test]
    fn a_weak_secret_is_refused() {
        assert_eq!(WebhookKey::from_bytes(&[1; 23]).unwrap_err(), WebhookKeyError::Length { bytes: 23 });
        assert_eq!(WebhookKey::from_bytes(&[1; 65]).unwrap_err(), WebhookKeyError::Length { bytes: 65 });
        assert_eq!(WebhookKey::from_text("whsec_").unwrap_err(), WebhookKeyError::Length { bytes: 0 });
        assert_eq!(WebhookKey::from_text("secret").unwrap_err(), WebhookKeyError::Text);
        assert_eq!(format!("{:?}", key()), "WebhookKey");
    }
}
