//! Errors for features that this build leaves out.

use crate::Failure;

/// The failure of an option whose feature is missing. It says how to get a build with that feature.
#[cfg_attr(all(feature = "redis", feature = "tls"), expect(dead_code, reason = "nothing is left out"))]
pub(crate) fn missing(option: &str, feature: &str) -> Failure {
    Failure::Usage(format!(
        "{option} needs the feature `{feature}`, which this build does not have: `cargo run --release --features {feature}` in the \
         repository builds it, and `cargo install rounds-cli` has all features"
    ))
}
