//! Errors for features that this build leaves out.

use crate::Failure;

/// The failure of an option whose feature is missing. It says how to get a build with that feature.
#[cfg_attr(
    all(feature = "metrics", feature = "redis", feature = "sql", feature = "tls", not(test)),
    expect(dead_code, reason = "nothing is left out")
)]
pub(crate) fn missing(option: &str, feature: &str) -> Failure {
    Failure::Usage(format!(
        "{option} needs the feature `{feature}`, which this build does not have: `cargo run --release --features {feature}` in the \
         repository builds it, and `cargo install rounds-cli` has all features"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_feature_is_named_with_the_command_that_adds_it() {
        let said = missing("--redis", "redis").to_string();
        assert!(said.starts_with("--redis needs the feature `redis`"), "{said}");
        assert!(said.contains("cargo run --release --features redis"), "{said}");
    }
}
