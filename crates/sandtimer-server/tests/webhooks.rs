//! Ends of jobs that are delivered over HTTP: to a real receiver, which answers as the test sets it
//! up.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use support::{HARD_STOP, ServerFixture, TestClient, wait_until};

/// A request as it came.
struct WebhookRequest {
    head: String,
    body: Vec<u8>,
}

impl WebhookRequest {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Takes requests, and answers the first with the first of these, the last with the last.
fn receiver(listener: TcpListener, answers: &'static [&'static str]) -> Receiver<WebhookRequest> {
    let (request_sender, requests) = channel();
    std::thread::spawn(move || {
        for count in 0.. {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|length| length > 2) {}
            let mut request = WebhookRequest { head, body: Vec::new() };
            let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            request.body.resize(length, 0);
            reader.read_exact(&mut request.body).expect("a body");
            let answer = answers.get(count).or(answers.last()).expect("an answer");
            // The sender may have left.
            let _ = write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            if request_sender.send(request).is_err() {
                return;
            }
        }
    });
    requests
}

fn listening() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn serving() -> ServerFixture {
    ServerFixture::with(|settings| settings.jobs.private_webhooks = true)
}

fn submit(client: &TestClient, spec: &Value) -> String {
    let (status, answer) = client.post("/v1/jobs", spec);
    assert_eq!(status, 201, "{answer}");
    answer["jobs"][0]["job_id"].as_str().expect("an id").to_owned()
}

fn webhook(client: &TestClient, id: &str) -> Value {
    client.get(&format!("/v1/jobs/{id}")).1["webhook"].clone()
}

fn until_settled(client: &TestClient, id: &str) -> Value {
    let is_settled = |webhook: &Value| {
        !webhook["delivered_ms"].is_null() || (webhook["due_ms"].is_null() && webhook["attempts"] != 0)
    };
    wait_until("it was told", || is_settled(&webhook(client, id)));
    webhook(client, id)
}

#[test]
fn end_is_delivered_signed_and_recorded() {
    let (listener, address) = listening();
    let requests = receiver(listener, &["204 No Content"]);
    let serving = serving();
    let client = serving.client();
    let hook = json!({"url": format!("http://{address}/hook?a=b"), "headers": {"X-Mine": "yes"}, "secret": "s3cret"});
    let id =
        submit(&client, &json!({"command": ["sh", "-c", "echo said; exit 3"], "name": "n", "webhook": hook}));
    let request = requests.recv_timeout(HARD_STOP).expect("a request");
    assert!(request.head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!((request.header("x-mine"), request.header("sandtimer-job")), (Some("yes"), Some(id.as_str())));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let body = request.json();
    assert_eq!(
        (&body["id"], &body["name"], &body["state"], &body["ok"]),
        (&json!(id), &json!("n"), &json!("ended"), &json!(false))
    );
    assert_eq!(
        (&body["result"]["status"], &body["result"]["outcome"]["exit_code"]),
        (&json!("failed"), &json!(3))
    );
    assert!(body["result"]["outcome"]["stdout"].is_null(), "the output is in the log");
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"s3cret").expect("a key");
    mac.update(&request.body);
    let digest = sandtimer_jobs::job::hexadecimal(&mac.finalize().into_bytes());
    assert_eq!(request.header("sandtimer-signature"), Some(format!("sha256={digest}").as_str()));
    let delivery = until_settled(&client, &id);
    assert_eq!((&delivery["attempts"], &delivery["error"]), (&json!(1), &Value::Null), "{delivery}");
    let (_, job) = client.get(&format!("/v1/jobs/{id}"));
    assert_eq!(request.header("webhook-id"), Some(format!("{id}-{}", job["ended_ms"]).as_str()));
    assert_standard_signature(&request, b"s3cret");
    assert_eq!(job["spec"]["webhook"]["secret"], true, "it is not shown");
    assert!(requests.try_recv().is_err(), "once is enough");
}

/// The signature of Standard Webhooks: of the id, the time and the body.
fn assert_standard_signature(request: &WebhookRequest, key: &[u8]) {
    use base64::Engine;
    use hmac::{Hmac, KeyInit, Mac};
    let header = |name| request.header(name).expect("a header");
    let seconds: u64 = header("webhook-timestamp").parse().expect("seconds since 1970");
    let now = sandtimer_os::clock::calendar_milliseconds() / 1_000;
    assert!(now.abs_diff(seconds) < 300, "{seconds} is not about {now}");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).expect("a key");
    mac.update(format!("{}.{seconds}.", header("webhook-id")).as_bytes());
    mac.update(&request.body);
    let digest = base64::prelude::BASE64_STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(header("webhook-signature"), format!("v1,{digest}"));
}

#[test]
fn chosen_ends_are_sent_and_any_end_on_request() {
    let (listener, address) = listening();
    let requests = receiver(listener, &["410 Gone", "204 No Content"]);
    let serving = serving();
    let client = serving.client();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let hook =
        json!({"url": format!("http://{address}/"), "secret": secret, "events": ["failed", "timeout"]});
    let spec = |script: &str| json!({"command": ["sh", "-c", script], "webhook": hook});
    let (well, badly) = (submit(&client, &spec("true")), submit(&client, &spec("false")));
    let first = requests.recv_timeout(HARD_STOP).expect("a request");
    assert_eq!(first.json()["id"], json!(badly));
    let key = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, &secret[6..]).expect("base64");
    assert_standard_signature(&first, &key);
    assert!(until_settled(&client, &badly)["error"].as_str().expect("a reason").contains("410"));
    wait_until("the other is over", || client.get(&format!("/v1/jobs/{well}")).1["state"] == "ended");
    let unsent = webhook(&client, &well);
    let error = unsent["error"].as_str().expect("a reason");
    assert!(error.contains("`ok`") && unsent["due_ms"].is_null() && unsent["attempts"] == 0, "{unsent}");

    let redeliver = |id: &str| client.post(&format!("/v1/jobs/{id}/redeliver"), &json!({}));
    let (status, due) = redeliver(&badly);
    assert_eq!(
        (status, &due["job_id"], &due["webhook"]["attempts"]),
        (200, &json!(badly), &json!(0)),
        "{due}"
    );
    let second = requests.recv_timeout(HARD_STOP).expect("a request");
    assert_eq!((second.header("webhook-id"), &second.body), (first.header("webhook-id"), &first.body));
    assert_standard_signature(&second, &key);
    wait_until("it is taken", || !webhook(&client, &badly)["delivered_ms"].is_null());
    assert_eq!(redeliver(&well).0, 200);
    assert_eq!(requests.recv_timeout(HARD_STOP).expect("a request").json()["id"], json!(well));

    let without = submit(&client, &json!({"command": ["true"]}));
    wait_until("it is over", || client.get(&format!("/v1/jobs/{without}")).1["state"] == "ended");
    let (status, refused) = redeliver(&without);
    assert_eq!((status, &refused["code"]), (409, &json!("job_state")), "{refused}");
    assert_eq!(redeliver("nosuchjob").0, 404);
    let (status, refused) = client
        .post("/v1/jobs", &json!({"command": ["true"], "webhook": {"url": "http://h", "events": ["done"]}}));
    assert_eq!((status, &refused["details"]["path"]), (400, &json!("webhook.events[0]")), "{refused}");
}

#[test]
fn failed_delivery_is_retried_and_rejected_one_is_not() {
    let (listener, address) = listening();
    let requests = receiver(listener, &["500 Oh", "429 Slow", "200 OK"]);
    let serving = serving();
    let client = serving.client();
    let spec =
        |address: SocketAddr| json!({"command": ["true"], "webhook": {"url": format!("http://{address}/")}});
    let id = submit(&client, &spec(address));
    let delivery = until_settled(&client, &id);
    assert_eq!((&delivery["attempts"], delivery["delivered_ms"].is_u64()), (&json!(3), true), "{delivery}");
    let bodies: Vec<Vec<u8>> =
        (0..3).map(|_| requests.recv_timeout(HARD_STOP).expect("a request").body).collect();
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2]);
    for (answers, expected) in [
        (&["404 Gone"][..], "it answered 404"),
        (&["302 Found\r\nlocation: http://127.0.0.1:1/"][..], "redirects are not followed"),
    ] {
        let (listener, address) = listening();
        let _requests = receiver(listener, answers);
        let delivery = until_settled(&client, &submit(&client, &spec(address)));
        let error = delivery["error"].as_str().expect("a reason");
        assert!(
            error.contains(expected) && delivery["attempts"] == 1 && delivery["delivered_ms"].is_null(),
            "{delivery}"
        );
    }
}

#[test]
fn private_address_waits_for_a_permitted_worker() {
    let (listener, address) = listening();
    let requests = receiver(listener, &["200 OK"]);
    let serving = ServerFixture::start();
    let client = serving.client();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/", address.port());
        let id = submit(&client, &json!({"command": ["true"], "webhook": {"url": url}}));
        wait_until("it is refused", || webhook(&client, &id)["error"].is_string());
        let waiting = webhook(&client, &id);
        let error = waiting["error"].as_str().expect("a reason");
        assert!(error.contains("not allowed") && error.contains("--private-webhooks"), "{waiting}");
        assert_eq!((&waiting["attempts"], waiting["due_ms"].is_u64()), (&json!(0), true), "{waiting}");
    }
    assert!(requests.try_recv().is_err(), "nothing was reached");
    let serving = ServerFixture::at(serving.stop(), |settings| settings.jobs.private_webhooks = true);
    for _ in 0..2 {
        requests.recv_timeout(HARD_STOP).expect("a request");
    }
    drop(serving);
}

#[test]
fn undelivered_end_is_sent_by_the_next_server() {
    let (listener, address) = listening();
    drop(listener);
    let serving = serving();
    let client = serving.client();
    let id = submit(&client, &json!({"command": ["true"], "webhook": {"url": format!("http://{address}/")}}));
    wait_until("it was tried", || webhook(&client, &id)["error"].is_string());
    let state = serving.stop();
    let requests = receiver(TcpListener::bind(address).expect("the port is free"), &["200 OK"]);
    let serving = ServerFixture::at(state, |settings| settings.jobs.private_webhooks = true);
    assert_eq!(requests.recv_timeout(HARD_STOP).expect("a request").json()["id"], id);
    assert!(until_settled(&serving.client(), &id)["attempts"].as_u64() > Some(1));
}

#[test]
fn end_without_a_worker_is_delivered() {
    let (listener, address) = listening();
    let requests = receiver(listener, &["200 OK"]);
    let serving = serving();
    let client = serving.client();
    let hook = json!({"url": format!("http://{address}/")});
    let far = 9_000_000_000_000_u64;
    let id = submit(&client, &json!({"command": ["true"], "not_before_ms": far, "webhook": hook}));
    assert_eq!(client.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).0, 200);
    let body = requests.recv_timeout(HARD_STOP).expect("a request").json();
    assert_eq!(
        (&body["id"], &body["state"], &body["result"]["status"]),
        (&json!(id), &json!("cancelled"), &json!("cancelled"))
    );
}

#[test]
fn unresponsive_receiver_delays_no_other_tenant() {
    // What connects waits in its queue.
    let (_tarpit, silent) = listening();
    let (listener, address) = listening();
    let requests = receiver(listener, &["200 OK"]);
    let serving = ServerFixture::with(|settings| {
        settings.jobs.private_webhooks = true;
        settings.tokens = Some(support::tokens("alice a-secret\nbob another\n"));
    });
    let over = |client: &TestClient, address: SocketAddr| {
        let hook = json!({"url": format!("http://{address}/")});
        let far = 9_000_000_000_000_u64;
        let id = submit(client, &json!({"command": ["true"], "not_before_ms": far, "webhook": hook}));
        assert_eq!(client.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).0, 200);
        id
    };
    let (alice, bob) = (serving.client_with("a-secret"), serving.client_with("another"));
    // Five times as many as are sent at a time, each for the ten seconds that an answer may take.
    let slow: Vec<String> = (0..40).map(|_| over(&alice, silent)).collect();
    wait_until("the first is being told", || webhook(&alice, &slow[0])["attempts"] == 1);
    let id = over(&bob, address);
    assert_eq!(requests.recv_timeout(HARD_STOP / 2).expect("a request").json()["id"], id);
}
