//! The steps of a claim as scripts: each runs atomically, and all keys of a flow are on the same server.

use std::sync::LazyLock;

use redis::Script;

macro_rules! script {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("lua/shared.lua"), include_str!($file))));
    };
}

script!(SPILL, "lua/spill.lua");
script!(CLAIM, "lua/claim.lua");
script!(RENEW, "lua/renew.lua");
script!(SETTLE, "lua/settle.lua");
script!(RELEASE, "lua/release.lua");
script!(
    /// Frees a claim whose owner never learned that it holds it.
    ABANDON,
    "lua/abandon.lua"
);
script!(
    /// Checks whether a claim is still running, and registers a waiter for it.
    WAIT,
    "lua/wait.lua"
);
