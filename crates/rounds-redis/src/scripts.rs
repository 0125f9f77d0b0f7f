//! The steps of a claim, as scripts: each is one atomic step on the server, and all keys of a flow are on the same one.

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
    /// Gives back a claim whose answer was never heard.
    ABANDON,
    "lua/abandon.lua"
);
script!(
    /// Looks whether a claim still runs, and says that somebody waits for it.
    WAIT,
    "lua/wait.lua"
);
