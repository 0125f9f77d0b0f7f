//! G, steps: each step is a question, and the finish runs after all are answered.
//!
//! No code of the author can run before the first question. Effects are in the finish, or where a refusal ends the
//! call.

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
        ToolRouter::new().with_route(weather_g.expect("one step cannot share its name with another"))
    }
}
