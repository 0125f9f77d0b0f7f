//! The desk of `rounds serve`.

use crate::process::Server;

/// The page at this path, and its status.
async fn get(server: &Server, path: &str, host: &str) -> (u16, String) {
    let url = format!("http://{}{path}", server.address());
    let response = rounds_testkit::http_client().get(url).header("host", host).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn the_desk_is_at_the_root_and_its_address_is_printed() {
    let mut server = Server::start(&[]).await;
    let line = server.line().await;
    assert!(line.starts_with(&format!("open http://{}/ in a browser", server.address())), "{line}");
    let (status, page) = get(&server, "/", "localhost").await;
    assert_eq!(status, 200);
    assert!(page.contains(">Waiting</h1>") && page.contains("Nothing waits.") && page.contains(">Try it<"), "{page}");
    let (status, page) = get(&server, "/try?tool=weather_h", "localhost").await;
    assert!(status == 200 && page.contains(">Call</button>"), "{page}");
    assert_eq!(get(&server, "/", "evil.example").await.0, 403, "a page that has its own name resolve to this machine");
    assert_eq!(get(&server, "/mcp/", "localhost").await.0, 404);
}

#[tokio::test]
async fn off_loopback_there_is_no_desk() {
    let server = Server::start_on("0.0.0.0:0", &["--host", "localhost"]).await;
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let url = format!("http://127.0.0.1:{port}/");
    assert_eq!(rounds_testkit::http_client().get(url).send().await.unwrap().status(), 404);
    assert_eq!(server.stop().await, "");
}
