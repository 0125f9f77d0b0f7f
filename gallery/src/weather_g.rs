//! G, steps: each is a question, and the finish is not reached before all are answered.
//!
//! There is no place above the question. Effects stand in the finish, or where a refusal ends the call.

use rmcp::handler::server::router::tool::ToolRouter;
use rounds::{Era, Steps, asked::DeclaredQuestion, steps::Refused};

use crate::{Gallery, Place, Units, report};

impl Gallery {
    pub(crate) fn weather_g_tools() -> ToolRouter<Self> {
        let weather_g = Steps::<Self, Place>::new("weather_g", "Weather for a place, asking for units (steps)")
            .step("units", async |step, ()| {
                Ok(if step.era() == Era::Legacy {
                    DeclaredQuestion::known(Units::Metric)
                } else {
                    DeclaredQuestion::form("Which units?")
                })
            })
            .refused(async |step, _name, how| {
                step.server().audit.record("weather_g");
                Ok(match how {
                    Refused::Declined => "Cancelled (decline).".to_owned(),
                    Refused::Cancelled => "Cancelled (cancel).".to_owned(),
                })
            })
            .finish(async |step, (units,)| {
                step.server().audit.record("weather_g");
                Ok(report(step.arguments(), units))
            })
            .build();
        ToolRouter::new().with_route(weather_g.expect("it has one step, and so no two of the same name"))
    }
}
