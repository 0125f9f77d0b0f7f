//! [`Format`]: what a server writes, so that old and new instances can serve one flow during a deploy.

/// Format that a server writes. It reads both.
///
/// Instances of two releases serve the same flows while a new release is rolled out. Therefore each release reads its
/// own format ([`Current`](Self::Current)) and that of the release before it ([`Previous`](Self::Previous)). It writes
/// the previous format until the operator says that no older instance is left. Set the format with
/// [`RoundsBuilder::format`](crate::RoundsBuilder::format) or `rounds serve --format`.
///
/// | | `Previous` | `Current` |
/// |---|---|---|
/// | journal of a [`Durable`](crate::Durable) flow, in a token or [spilled](crate::RoundsBuilder::spill) | without the texts of its questions | with the texts: if a question changed, the log shows both |
/// | everything else in a token, records in a ledger, messages of a [`relay`](crate::relay) | the same | the same |
///
/// # What the previous format cannot express
///
/// A journal with one of these is written in the current format, whatever the setting:
///
/// - the failure of an effect, after which the handler continued;
/// - a question with a time of its own ([`within`](crate::ask::QuestionBuilder::within)) that is open, or was not
///   answered in time.
///
/// An instance of the previous release rejects such a token with the error of every rejected state, before it claims
/// the round or runs the handler. The token stays valid: the same request succeeds on an instance of this release. A
/// client that does not send the request again has to start the call again.
///
/// In a flow of [`Round`](crate::Round), [`Steps`](crate::Steps) or [`Asked`](crate::Asked), a failed effect is
/// recorded in the place of the effect's value, in both formats. An instance of the previous release cannot read it as
/// a value and rejects the leg in the same way. If the effect succeeded since, that instance returns its value and does
/// not replay the failures before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// The format of the previous release. The default in this release.
    #[default]
    Previous,
    /// The format of this release. Choose it when every instance runs this release, and before a release that changes
    /// the format again: that one no longer reads what is the previous format now.
    Current,
}
