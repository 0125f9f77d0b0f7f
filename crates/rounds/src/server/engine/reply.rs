//! The reply of a leg in the form that is kept for equal legs and sent to other instances.

use rmcp::ErrorData;

use super::exchange::Response;

/// A reply as a ledger keeps it: a byte that tells results from errors, then JSON.
pub(super) struct Reply;

impl Reply {
    const RESULT: u8 = b'r';
    const ERROR: u8 = b'e';

    /// None when it cannot be written, which is as good as one that is not kept.
    pub(super) fn encode<R: Response>(reply: Result<&R, &ErrorData>) -> Option<Vec<u8>> {
        // Most are not longer.
        let mut kept = Vec::with_capacity(512);
        match reply {
            Ok(response) => {
                kept.push(Self::RESULT);
                response.write_json(&mut kept).ok()?;
            }
            Err(error) => {
                kept.push(Self::ERROR);
                serde_json::to_writer(&mut kept, error).ok()?;
            }
        }
        Some(kept)
    }

    /// The JSON of a result or error.
    pub(super) fn json(kept: &[u8]) -> Option<&str> {
        str::from_utf8(kept.get(1..)?).ok()
    }

    pub(super) fn decode<R: Response>(kept: &[u8]) -> Option<Result<R, ErrorData>> {
        match kept.split_first()? {
            (&Self::RESULT, json) => Some(Ok(R::from_json(json).ok()?)),
            (&Self::ERROR, json) => Some(Err(serde_json::from_slice(json).ok()?)),
            _ => None,
        }
    }
}

/// A reply that is read is written and read again as the same. For the fuzz targets.
#[cfg(feature = "test")]
pub(crate) fn fuzz(kept: &[u8]) {
    fn as_any<R: Response>(kept: &[u8]) {
        let Some(read) = Reply::decode::<R>(kept) else { return };
        let written = Reply::encode(read.as_ref()).expect("what was read can be written");
        let again = Reply::decode::<R>(&written).expect("what was written can be read");
        assert_eq!(Reply::encode(again.as_ref()), Some(written));
    }
    as_any::<rmcp::model::CallToolResponse>(kept);
    as_any::<rmcp::model::GetPromptResponse>(kept);
    as_any::<rmcp::model::ReadResourceResponse>(kept);
}
