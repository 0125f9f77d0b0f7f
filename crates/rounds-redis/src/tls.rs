//! TLS to Redis: which certificates are trusted, and which one this process shows.

use std::{fmt, path::Path};

use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError};

use crate::connect::ConnectError;

/// Certificates for `rediss://` (feature `tls`). By default, those that the operating system trusts, and none of its own.
///
/// ```no_run
/// # use rounds_redis::{ConnectError, RedisLedger, RedisTls};
/// # async fn main_() -> Result<(), ConnectError> {
/// let tls = RedisTls::new().ca_file("ca.pem")?.client_files("client.pem", "client.key")?;
/// let ledger = RedisLedger::builder("rediss://redis.internal/").tls(tls).connect().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct RedisTls {
    ca: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl RedisTls {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates of this PEM file, and no others.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Certificate`] if the file cannot be read.
    pub fn ca_file(mut self, file: impl AsRef<Path>) -> Result<Self, ConnectError> {
        self.ca = Some(read(file.as_ref())?);
        Ok(self)
    }

    /// Shows the certificate of this PEM file to Redis, with the key of the other.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Certificate`] if a file cannot be read.
    pub fn client_files(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, ConnectError> {
        self.client = Some((read(certificate.as_ref())?, read(key.as_ref())?));
        Ok(self)
    }

    /// A client for this address, with these certificates if it has TLS.
    pub(crate) fn client(&self, address: ConnectionInfo) -> Result<Client, RedisError> {
        #[cfg(feature = "tls")]
        if matches!(address.addr(), ConnectionAddr::TcpTls { .. }) {
            // The application may have chosen another provider of cryptography.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client_tls = self.client.clone();
            let client_tls =
                client_tls.map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
            let certificates = redis::TlsCertificates { client_tls, root_cert: self.ca.clone() };
            return Client::build_with_tls(address, certificates);
        }
        #[cfg(not(feature = "tls"))]
        if matches!(address.addr(), ConnectionAddr::TcpTls { .. }) {
            let why = "TLS to Redis needs the feature `tls` of rounds-redis";
            return Err((redis::ErrorKind::InvalidClientConfig, why).into());
        }
        Client::open(address)
    }
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("has_ca", &self.ca.is_some())
            .field("has_client", &self.client.is_some())
            .finish()
    }
}

fn read(file: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(file).map_err(|source| ConnectError::Certificate { file: file.display().to_string(), source })
}
