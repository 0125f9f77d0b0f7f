//! Choices whose options are known only at run time.

use rmcp::{handler::server::tool::ToolRoute, schemars, tool, tool_router};
use rounds::{
    Ask, Asked, Durable, FlowError, Given, Limits, Round, Rounds, Steps,
    asked::{DeclaredQuestion, Question},
    durable,
    form::{Alternative, Schema},
    test::{Client, accept, decline},
    text,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Repo, clients, server};

/// A branch, for shapes in which the type is the question.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
struct Branch(String);

impl Question for Branch {
    type Server = Repo;
    type On = ();

    fn ask(repo: &Repo, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::choose("Which branch?", repo.branches()).key("branch"))
    }
}

/// Several branches, for the same shapes.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
struct Branches(Vec<String>);

impl Question for Branches {
    type Server = Repo;
    type On = ();

    fn ask(repo: &Repo, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form_with("Which branches?", Schema::choices(titled(repo))).key("choice"))
    }
}

fn titled(repo: &Repo) -> Vec<(String, String)> {
    let branches = repo.branches().into_iter();
    branches.map(|branch| (branch.clone(), format!("The branch {branch}"))).collect()
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tool_router(router = choices)]
impl Repo {
    #[tool]
    async fn linear(&self, ask: Ask) -> Result<String, FlowError> {
        ask.choose("Which branch?", self.branches()).key("branch").await
    }

    #[tool]
    async fn declared(&self, Asked(branch): Asked<Branch>) -> String {
        branch.0
    }

    #[tool]
    async fn guard(&self, round: Round) -> Result<rmcp::model::CallToolResponse, FlowError> {
        let branches = Schema::<String>::choice(self.branches());
        match round.given_with("branch", &branches) {
            Given::Accepted(branch) => Ok(text(branch)),
            Given::Declined => Err(FlowError::Declined { question: "Which branch?".to_owned() }),
            Given::Cancelled => Err(FlowError::Cancelled { question: "Which branch?".to_owned() }),
            Given::Missing | Given::Invalid(_) => round.ask_form_with("branch", "Which branch?", &branches),
        }
    }

    #[tool]
    async fn several(&self, ask: Ask) -> Result<String, FlowError> {
        Ok(ask.choose_some("Which branches?", titled(self)).await?.join(" and "))
    }

    #[tool]
    async fn several_declared(&self, Asked(branches): Asked<Branches>) -> String {
        branches.0.join(" and ")
    }

    #[tool]
    async fn several_guard(&self, round: Round) -> Result<rmcp::model::CallToolResponse, FlowError> {
        let branches = Schema::<Vec<String>>::choices(titled(self));
        match round.given_with("choice", &branches) {
            Given::Accepted(branches) => Ok(text(branches.join(" and "))),
            _ => round.ask_form_with("choice", "Which branches?", &branches),
        }
    }

    #[tool]
    async fn nothing(&self, ask: Ask) -> Result<String, FlowError> {
        ask.choose("Which one?", Vec::<String>::new()).await
    }

    #[tool]
    async fn many(&self, ask: Ask) -> Result<String, FlowError> {
        ask.choose("Which one?", (0..6).map(|n| n.to_string())).await
    }
}

async fn durably(flow: Durable<Repo>, _: Nothing) -> Result<String, FlowError> {
    let branches = flow.once("branches", async |repo, _| repo.branches()).await?;
    let branch = flow.choose("Which branch?", branches).key("branch").await?;
    flow.confirm("Sure?").await?;
    Ok(branch)
}

async fn several_durably(flow: Durable<Repo>, _: Nothing) -> Result<String, FlowError> {
    let titled = flow.once("branches", async |repo, _| titled(repo)).await?;
    Ok(flow.choose_some("Which branches?", titled).await?.join(" and "))
}

fn several_stepped() -> ToolRoute<Repo> {
    let steps = Steps::<Repo, Nothing>::new("several_stepped", "Chooses branches").step(
        "choice",
        async |at, ()| -> Result<DeclaredQuestion<Branches>, FlowError> {
            Ok(DeclaredQuestion::form_with("Which branches?", Schema::choices(titled(at.server()))))
        },
    );
    steps.finish(async |_, (branches,): (Branches,)| Ok(branches.0.join(" and "))).build().unwrap()
}

fn stepped() -> ToolRoute<Repo> {
    let steps = Steps::<Repo, Nothing>::new("stepped", "Chooses a branch").step(
        "branch",
        async |at, ()| -> Result<DeclaredQuestion<Branch>, FlowError> {
            Ok(DeclaredQuestion::choose("Which branch?", at.server().branches()))
        },
    );
    let steps = steps.step("sure", async |_, _| Ok(DeclaredQuestion::<bool>::form("Sure?")));
    steps.finish(async |_, (branch, _): (Branch, bool)| Ok(branch.0)).build().unwrap()
}

fn routes() -> Vec<ToolRoute<Repo>> {
    let macros = Repo::choices().into_iter();
    let durable = [durable("durably", "Chooses", durably), durable("several_durably", "Chooses", several_durably)];
    macros.chain(durable).chain([stepped(), several_stepped()]).collect()
}

/// The shapes, and what each asks after the branch.
const SHAPES: [(&str, Option<&str>); 5] =
    [("linear", None), ("declared", None), ("guard", None), ("durably", Some("confirm")), ("stepped", Some("sure"))];

fn sure(key: Option<&str>) -> Option<Value> {
    key.map(|key| accept(json!({ key: true })))
}

#[tokio::test]
async fn one_of_several_is_chosen_in_every_shape_and_both_eras() {
    let server = server(routes());
    for client in clients(&server).await {
        for (tool, then) in SHAPES {
            let answers = [accept(json!({"branch": "old-ui"}))].into_iter().chain(sure(then));
            let played = client.play(tool, json!({}), answers).await;
            assert_eq!((played.messages()[0], &*played.text()), ("Which branch?", "old-ui"), "{tool}");
            let offered = &played.question(0).schema()["properties"]["branch"];
            assert_eq!(offered["enum"], json!(["main", "fix-login", "old-ui"]), "{tool}: {offered}");
        }
    }
}

#[tokio::test]
async fn what_was_not_offered_is_asked_for_again_in_every_shape_and_both_eras() {
    let server = server(routes());
    for client in clients(&server).await {
        for (tool, then) in SHAPES {
            let answers = [accept(json!({"branch": "secret"})), accept(json!({"branch": "main"}))];
            let played = client.play(tool, json!({}), answers.into_iter().chain(sure(then))).await;
            let told = "Which branch? (`branch` must be one of main, fix-login, old-ui)";
            assert_eq!((played.messages()[1], &*played.text()), (told, "main"), "{tool}");
        }
    }
}

#[tokio::test]
async fn a_declined_choice_is_a_tool_error() {
    let server = server(routes());
    for client in clients(&server).await {
        for (tool, _) in SHAPES {
            let played = client.play(tool, json!({}), [decline()]).await;
            assert!(played.is_tool_error(), "{tool}");
            assert_eq!(played.text(), "The user declined: Which branch?", "{tool}");
        }
    }
}

#[tokio::test]
async fn several_are_chosen_by_their_titles_in_every_shape_and_both_eras() {
    let server = server(routes());
    for client in clients(&server).await {
        for tool in ["several", "several_declared", "several_guard", "several_durably", "several_stepped"] {
            let answers =
                [accept(json!({"choice": ["main", "secret"]})), accept(json!({"choice": ["main", "old-ui"]}))];
            let played = client.play(tool, json!({}), answers).await;
            assert_eq!((played.messages().len(), &*played.text()), (2, "main and old-ui"), "{tool}");
            let items = &played.question(0).schema()["properties"]["choice"]["items"]["anyOf"];
            assert_eq!(items[1], json!({"const": "fix-login", "title": "The branch fix-login"}), "{tool}");
        }
    }
}

#[tokio::test]
async fn a_choice_of_nothing_or_of_too_much_is_the_authors_error() {
    let server = server(routes());
    let client = Client::modern(server.clone()).await;
    let error = client.call("nothing", json!({})).await.error()["message"].clone();
    assert_eq!(error, "this schema cannot be asked for with a form: there is nothing to choose from");
    let error = client.call("many", json!({})).await.error()["message"].clone();
    let told = "the question `choice` has 6 options, and the limit is 5: offer fewer, or raise `Limits::with_choices`";
    assert_eq!(error, told);
    assert_eq!(Limits::default().choices, 500);
}

#[tokio::test]
async fn a_choice_that_is_gone_when_the_answer_comes_is_not_taken() {
    for (tool, then) in SHAPES {
        // A linear handler keeps the options that it offered, and a durable one has them in its journal.
        if ["linear", "durably"].contains(&tool) {
            continue;
        }
        let server = server(routes());
        let client = Client::modern(server.clone()).await;
        let asked = client.call(tool, json!({})).await.asked();
        server.handler().branches.lock().unwrap().retain(|branch| branch != "main");
        let again = asked.accept("branch", json!({"branch": "main"})).send(&client).await.asked();
        assert!(again.message("branch").starts_with("Which branch?"), "{tool}");
        assert_eq!(again.options("branch", "branch"), ["fix-login", "old-ui"], "{tool}");
        let mut leg = again.accept("branch", json!({"branch": "old-ui"})).send(&client).await;
        if let Some(then) = then {
            leg = leg.asked().accept(then, json!({ then: true })).send(&client).await;
        }
        assert_eq!(leg.text(), "old-ui", "{tool}");
    }
}

#[tokio::test]
async fn a_chosen_step_is_not_run_again_after_it_has_its_value() {
    let server = server(routes());
    let client = Client::modern(server.clone()).await;
    let asked = client.call("stepped", json!({})).await.asked();
    let then = asked.accept("branch", json!({"branch": "main"})).send(&client).await.asked();
    // The options have changed, and the value that was chosen stays.
    server.handler().branches.lock().unwrap().clear();
    assert_eq!(then.accept("sure", json!({"sure": true})).send(&client).await.text(), "main");
}

#[tokio::test]
async fn options_that_differ_on_replay_end_a_durable_call() {
    async fn careless(flow: Durable<Repo>, _: Nothing) -> Result<String, FlowError> {
        static LEGS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let leg = LEGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        flow.choose("Which one?", [format!("{leg}"), "x".to_owned()]).await
    }
    let server: Rounds<Repo> = server([durable("careless", "Changes its options", careless)]);
    let client = Client::modern(server).await;
    let asked = client.call("careless", json!({})).await.asked();
    let leg = asked.accept("choice", json!({"choice": "x"})).send(&client).await;
    assert_eq!(leg.error()["code"], -32603, "{leg:?}");
}

#[test]
fn an_option_is_a_text_a_pair_or_a_value_with_a_title() {
    assert_eq!(Alternative::from("a"), Alternative::new("a"));
    assert_eq!(Alternative::from(("a", "A")), Alternative::new("a").title("A"));
}
