//! HTTP clients for tests.

/// A client of reqwest.
pub fn http_client() -> reqwest::Client {
    install_crypto();
    reqwest::Client::new()
}

/// Lets the clients of this process be built.
///
/// Features are those of the whole build: where the command line is built too, every reqwest has TLS but no cryptography, and no client
/// can be built before the process has installed one.
pub fn install_crypto() {
    // An error says that the process has one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
