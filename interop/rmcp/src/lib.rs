//! `rmcp` as its own tests see it here: the same crate, but every way to start a server puts the server inside a
//! [`Rounds`](rounds::Rounds) first. Clients are left alone.

pub use upstream::*;

pub use self::service::{ServiceExt, serve_server};

pub mod service;
mod streamable_http;

pub mod transport {
    pub use upstream::transport::*;

    pub use crate::streamable_http::StreamableHttpService;

    pub mod streamable_http_server {
        pub use upstream::transport::streamable_http_server::*;

        pub use crate::streamable_http::StreamableHttpService;

        pub mod tower {
            pub use upstream::transport::streamable_http_server::tower::*;

            pub use crate::streamable_http::StreamableHttpService;
        }
    }
}

/// What a client says that answers every question.
#[expect(deprecated, reason = "sampling and roots can still be asked for")]
pub fn declare_everything() -> model::ClientConfig {
    let capabilities =
        model::ClientCapabilities::builder().enable_elicitation().enable_sampling().enable_roots().build();
    model::ClientConfig::new(capabilities, model::Implementation::from_build_env())
}

/// Whether modern clients are asked what handlers request of their peer.
pub fn asks_modern_clients() -> bool {
    std::env::var_os("RMCP_PUSHES").is_some()
}

/// The builder of a server that is wrapped.
fn builder<H: ServerHandler>(handler: H) -> rounds::RoundsBuilder<H> {
    let builder = rounds::Rounds::builder(handler);
    if asks_modern_clients() { builder.pushes() } else { builder }
}

/// Counts a server that was wrapped: writes a byte to the file that `RMCP_WRAPPED` names. Some of the tests start processes, so a number in
/// memory would not do.
fn count() {
    use std::{env, fs::OpenOptions, io::Write};

    let file = env::var_os("RMCP_WRAPPED").expect("`cargo xtask rmcp` runs these tests");
    let mut file = OpenOptions::new().create(true).append(true).open(file).expect("the file can be written");
    file.write_all(b".").expect("the file can be written");
}
