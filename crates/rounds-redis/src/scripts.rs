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

/// The steps of a document.
pub(crate) mod documents {
    use std::sync::LazyLock;

    use redis::Script;

    script!(DUE, "lua/documents/due.lua");
    script!(READ, "lua/documents/read.lua");
    script!(REMOVE, "lua/documents/remove.lua");
    script!(WRITE, "lua/documents/write.lua");
}

/// Steps of a claim that change the record of its flow as well, and the other scripts of the register.
pub(crate) mod register {
    use std::sync::LazyLock;

    use redis::Script;

    /// A script that has another one as its `step`.
    macro_rules! with {
        ($name:ident, $step:literal, $file:literal) => {
            pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
                Script::new(concat!(
                    include_str!("lua/shared.lua"),
                    include_str!("lua/register/shared.lua"),
                    "local function step()\n",
                    include_str!($step),
                    "\nend\n",
                    include_str!($file)
                ))
            });
        };
    }

    macro_rules! script {
        ($name:ident, $file:literal) => {
            pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
                Script::new(concat!(
                    include_str!("lua/shared.lua"),
                    include_str!("lua/register/shared.lua"),
                    include_str!($file)
                ))
            });
        };
    }

    with!(CLAIM, "lua/claim.lua", "lua/register/claim.lua");
    with!(SETTLE, "lua/settle.lua", "lua/register/settle.lua");
    with!(RELEASE, "lua/release.lua", "lua/register/release.lua");
    with!(ABANDON, "lua/abandon.lua", "lua/register/abandon.lua");
    script!(BEGIN, "lua/register/begin.lua");
    script!(CANCEL, "lua/register/cancel.lua");
    script!(COUNT, "lua/register/count.lua");
    script!(DELETE, "lua/register/delete.lua");
    script!(GET, "lua/register/get.lua");
    script!(LIST, "lua/register/list.lua");
    script!(SWEEP, "lua/register/sweep.lua");
}
