//! Choices that are known only at run time, a confirmation, and an answer with a rule.

use rmcp::{handler::server::wrapper::Parameters, schemars, tool, tool_router};
use rounds::{Answer, Ask, FlowError};
use serde::Deserialize;

use crate::Gallery;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct Which {
    /// The name of the repository
    repo: String,
}

#[tool_router(router = delete_branch_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Deletes a branch, after asking which")]
    async fn delete_branch(
        &self,
        Parameters(Which { repo }): Parameters<Which>,
        ask: Ask,
    ) -> Result<String, FlowError> {
        let mut repository = Repository::default();
        let which = ask.choose(format!("Which branch of {repo}?"), &repository.branches).key("branch");
        let Answer::Accepted(branch) = which.answer().await? else { return not_deleted() };
        if !ask.confirm(format!("Delete {branch}?")).await? {
            return not_deleted();
        }
        if branch == "main" && !type_again(&ask, &branch).await? {
            return not_deleted();
        }
        repository.delete(&branch);
        Ok(format!("Deleted {branch}."))
    }
}

/// Asks for the name of the branch again, three times at most. False if the user refuses.
async fn type_again(ask: &Ask, branch: &str) -> Result<bool, FlowError> {
    let name = branch.to_owned();
    let is_same = move |typed: &String| if *typed == name { Ok(()) } else { Err(format!("that is not {name}")) };
    let again = ask.form::<String>(format!("Type {branch} again to delete it.")).key("again").check(is_same).reasks(2);
    Ok(matches!(again.answer().await?, Answer::Accepted(_)))
}

fn not_deleted() -> Result<String, FlowError> {
    Ok("Not deleted.".to_owned())
}

/// A repository in memory. Every call has one of its own, so that each finds the same branches.
struct Repository {
    branches: Vec<String>,
}

impl Default for Repository {
    fn default() -> Self {
        Self { branches: ["main", "fix-login", "old-ui"].map(str::to_owned).to_vec() }
    }
}

impl Repository {
    fn delete(&mut self, branch: &str) {
        self.branches.retain(|known| known != branch);
    }
}
