//! I, durable: linear like H, and each leg may reach another instance.
//!
//! The handler runs again for every round and replays its journal. It has no `&self`, so effects can only run inside
//! `once`.

use rmcp::handler::server::router::tool::ToolRouter;
use rounds::{Answer, Durable, FlowError, durable};

use crate::{Gallery, Place, Units, report};

impl Gallery {
    pub(crate) fn weather_i_tools() -> ToolRouter<Self> {
        ToolRouter::new().with_route(durable("weather_i", "Weather for a place, asking for units (durable)", weather_i))
    }
}

async fn weather_i(flow: Durable<Gallery>, place: Place) -> Result<String, FlowError> {
    flow.once("audit", async |gallery, _key| gallery.audit.record("weather_i")).await?;
    Ok(match flow.form::<Units>("Which units?").key("units").answer().await? {
        Answer::Accepted(units) => report(&place, units),
        Answer::Declined => "Cancelled (decline).".to_owned(),
        Answer::Cancelled => "Cancelled (cancel).".to_owned(),
    })
}
