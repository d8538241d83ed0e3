//! The page of operators, as a browser and as attackers send requests to it. A real browser uses it in
//! `cargo xtask test browser`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::admin::{AdminFixture, Answer};
use crate::fixture::{HANGS, HostFolder, server_section, wait_until};

/// How often a page is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Headers that a browser sends with requests of the page itself.
const OWN: &str = "sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\n";
/// All that changes something, with forms.
const ACTIONS: [&str; 13] = [
    "/stop",
    "/resume",
    "/reload",
    "/running/1/cancel",
    "/pending/questions/1/approve",
    "/pending/questions/1/refuse",
    "/pending/plugins/p/grant",
    "/tools/e__echo/call",
    "/tools/e__echo/disable",
    "/tools/e__echo/enable",
    "/api/v1/stop",
    "/api/v1/tools/e__echo/disable",
    "/api/v1/questions/1/approve",
];

/// A browser that is signed in.
struct Browser<'a> {
    admin: &'a AdminFixture,
    cookie: String,
}

impl<'a> Browser<'a> {
    fn sign_in(admin: &'a AdminFixture, token: &str) -> Self {
        let answer = post(admin, "/login", "", &format!("token={token}"));
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        assert!(cookie.contains("; httponly; samesite=strict"), "{cookie}");
        Self { admin, cookie: cookie.split(';').next().unwrap().to_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        self.get_with(path, OWN)
    }

    fn get_with(&self, path: &str, headers: &str) -> Answer {
        let host = &self.admin.address;
        self.admin
            .send(&format!("GET {path}"), &format!("host: {host}\r\ncookie: {}\r\n{headers}", self.cookie))
    }

    /// A page.
    fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    fn post(&self, path: &str, form: &str) -> Answer {
        self.post_with(path, OWN, form)
    }

    fn post_with(&self, path: &str, headers: &str, form: &str) -> Answer {
        post_with(self.admin, path, &format!("cookie: {}\r\n{headers}", self.cookie), form)
    }

    /// An action that the page performs.
    fn act(&self, path: &str, form: &str) {
        let answer = self.post(path, form);
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
    }
}

fn post(admin: &AdminFixture, path: &str, headers: &str, form: &str) -> Answer {
    post_with(admin, path, &format!("{OWN}{headers}"), form)
}

fn post_with(admin: &AdminFixture, path: &str, headers: &str, form: &str) -> Answer {
    let (host, length) = (&admin.address, form.len());
    let kind = "content-type: application/x-www-form-urlencoded";
    // The body follows the empty line after the headers.
    admin.send_with_body(
        &format!("POST {path}"),
        &format!("host: {host}\r\n{headers}{kind}\r\ncontent-length: {length}\r\n"),
        form,
    )
}

/// Starts a call that takes a while.
fn sleep(admin: &mut AdminFixture, id: u64) {
    admin.server.send(id, "tools/call", &json!({"name": "s__sleep", "arguments": {"ms": 25_000}}));
}

/// Waits until a page has a text.
fn until_shown(browser: &Browser<'_>, path: &str, text: &str) -> String {
    let begin = Instant::now();
    loop {
        let page = browser.page(path);
        if page.contains(text) {
            return page;
        }
        assert!(begin.elapsed() < HANGS, "{path} never shows {text}: {page}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn a_person_signs_in_and_out() {
    let admin = AdminFixture::with_admin("");
    let start = admin.send("GET /", &format!("host: {}\r\n", admin.address));
    assert_eq!(start.status, 303);
    assert!(start.head.contains("location: /login"), "{start:?}");
    let form = admin.send("GET /login", &format!("host: {}\r\n", admin.address));
    assert!(form.status == 200 && form.body.contains("type=\"password\""), "{form:?}");
    let wrong = post(&admin, "/login", "", "token=nobody");
    assert!(wrong.status == 401 && wrong.body.contains("the token is unknown"), "{wrong:?}");
    assert!(!wrong.head.contains("set-cookie"), "{wrong:?}");

    let browser = Browser::sign_in(&admin, "test");
    let page = browser.get("/");
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "x-frame-options: deny",
        "x-content-type-options: nosniff",
        "referrer-policy: same-origin",
        "cache-control: no-store",
    ] {
        assert!(page.head.contains(header), "{header}: {page:?}");
    }
    assert!(
        page.body.contains("token:oncall") && page.body.contains("<title>Now – Toolbay</title>"),
        "{}",
        page.body
    );
    for (path, kind) in [("/style.css", "text/css"), ("/page.js", "text/javascript")] {
        let asset = browser.get(path);
        assert!(asset.head.contains(&format!("content-type: {kind}")) && asset.body.len() < 10_000, "{path}");
    }
    let other = Browser::sign_in(&admin, "test");
    browser.act("/logout", "");
    assert_eq!(browser.get("/").status, 303);
    assert_eq!(other.get("/").status, 200, "a session of its own");
    // A token that is taken away ends its sessions at once.
    admin.desk.write_private("admin.toml", "");
    assert_eq!(other.get("/").status, 401);
    let log = admin.desk.good(&["log", "--json"]);
    assert!(log.contains("\"reason\":\"token_unknown\""), "{log}");
}

#[test]
fn guesses_of_a_token_are_limited_and_those_who_are_signed_in_are_not() {
    let admin = AdminFixture::with_admin("");
    let browser = Browser::sign_in(&admin, "test");
    let guesses: Vec<Answer> =
        (0..30).map(|n| post(&admin, "/login", "", &format!("token=guess-{n}"))).collect();
    let refused = guesses.iter().position(|answer| answer.status == 429).expect("a limit");
    assert!((5..=12).contains(&refused), "{refused}");
    assert!(guesses[refused..].iter().all(|answer| answer.status == 429), "{guesses:?}");
    assert!(guesses[refused].head.contains("retry-after: "), "{:?}", guesses[refused]);
    assert_eq!(admin.with_token("GET /api/v1/calls", "another guess").status, 429);
    // Tokens that were accepted before are no guesses.
    assert_eq!(browser.get("/").status, 200);
    assert_eq!(admin.with_token("GET /api/v1/calls", "test").status, 200);
    assert!(admin.desk.good(&["log", "--json"]).contains("\"reason\":\"wrong_tokens\""));
}

#[test]
fn pages_of_other_origins_cannot_act_or_read() {
    let admin = AdminFixture::with_admin("");
    let browser = Browser::sign_in(&admin, "test");
    let port = admin.address.rsplit(':').next().unwrap();
    for headers in [
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n".to_owned(),
        "sec-fetch-site: same-site\r\nsec-fetch-mode: navigate\r\n".to_owned(),
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: cors\r\norigin: https://evil.example\r\n".to_owned(),
        "sec-fetch-site: none\r\n".to_owned(),
        "origin: https://evil.example\r\n".to_owned(),
        "origin: null\r\n".to_owned(),
        format!("origin: http://localhost:{port}\r\n"),
        format!("origin: http://{}.evil.example\r\n", admin.address),
        // A cookie that was stolen, in a program that sends nothing else.
        String::new(),
    ] {
        for path in ACTIONS {
            let answer = browser.post_with(path, &headers, "reason=x&digest=x");
            assert_eq!(answer.status, 403, "{path}, {headers}: {answer:?}");
        }
        assert_eq!(post_with(&admin, "/login", &headers, "token=test").status, 403, "{headers}");
    }
    // Scripts, images and streams of other pages; a link is fine.
    for mode in ["no-cors", "cors", "same-origin"] {
        for site in ["cross-site", "same-site"] {
            let headers = format!("sec-fetch-site: {site}\r\nsec-fetch-mode: {mode}\r\n");
            assert_eq!(browser.get_with("/api/v1/log", &headers).status, 403, "{headers}");
        }
    }
    assert_eq!(
        browser.get_with("/calls", "sec-fetch-site: same-site\r\nsec-fetch-mode: navigate\r\n").status,
        200
    );
    // A name that an attacker's DNS server points here.
    let rebound =
        admin.send("GET /", &format!("host: evil.example:{port}\r\ncookie: {}\r\n{OWN}", browser.cookie));
    assert_eq!(rebound.status, 403, "{rebound:?}");
    assert!(admin.desk.good(&["status"]).contains("0 calls in progress"));
    assert!(!admin.desk.path("state/stop.json").exists());
    // The page itself can.
    assert_eq!(
        browser.post_with("/stop", &format!("origin: http://{}\r\n", admin.address), "reason=drill").status,
        303
    );
    assert!(browser.page("/").contains("drill"));
    browser.act("/resume", "");
}

#[test]
fn the_role_view_reads_and_changes_nothing() {
    let admin = AdminFixture::with_admin("");
    let browser = Browser::sign_in(&admin, "b");
    for path in [
        "/",
        "/calls",
        "/refused",
        "/pending",
        "/plugins",
        "/plugins/e",
        "/tools",
        "/tools/e__echo",
        "/budgets",
    ] {
        let page = browser.page(path);
        assert_eq!(page.matches("method=\"post\"").count(), 1, "only signing out: {path}: {page}");
    }
    for path in ACTIONS {
        let answer = browser.post(path, "reason=x&digest=x&mode=run");
        assert!(answer.status == 403 && answer.body.contains("changes nothing"), "{path}: {answer:?}");
    }
    for path in ["server", "calls", "log", "plugins", "tools", "pending", "budgets"] {
        assert_eq!(browser.get(&format!("/api/v1/{path}")).status, 200, "{path}");
    }
    browser.act("/logout", "");
}

#[test]
fn running_calls_are_watched_and_cancelled() {
    let mut admin = AdminFixture::with_admin("");
    sleep(&mut admin, 1);
    let browser = Browser::sign_in(&admin, "test");
    let page = until_shown(&browser, "/", "running</td>");
    assert!(page.contains("s__sleep") && page.contains("1 running, 0 waiting"), "{page}");
    let cancel = page.split('"').find(|part| part.starts_with("/running/")).unwrap();
    browser.act(cancel, "");
    // It has ended by then, which is no error.
    browser.act(cancel, "");
    assert_eq!(admin.server.result(1)["isError"], json!(true));
    let browser = Browser::sign_in(&admin, "test");
    let page = until_shown(&browser, "/calls", "cancelled</td>");
    let call = page.split('"').find(|part| part.starts_with("/calls/")).unwrap();
    let detail = browser.page(call);
    assert!(
        detail.contains("s__sleep") && detail.contains("In the queue") && detail.contains("Fuel"),
        "{detail}"
    );
    assert_eq!(browser.get("/calls/999999").status, 404);
    assert_eq!(browser.get("/calls/x").status, 400);
    let log = admin.desk.good(&["log", "--json"]);
    assert!(log.contains("\"action\":\"cancel\"") && log.contains("\"by\":\"token:oncall\""), "{log}");
}

#[test]
fn refusals_are_explained_with_the_lines_that_would_allow_them() {
    let folder = AdminFixture::folder("", "").with_plugin("p", guest_artifacts::CAP_CONSENT);
    let mut admin = AdminFixture::start(folder);
    let refused = admin.call(1, "p__keep", &json!({}));
    assert_eq!(refused["isError"], json!(true));
    let browser = Browser::sign_in(&admin, "test");
    let page = browser.page("/refused");
    assert!(
        page.contains("p__keep") && page.contains("[plugins.p.grant]") && page.contains("kv = ["),
        "{page}"
    );
    // A gate refused it: the reason is that of the audit.
    admin.server.send(2, "tools/call", &json!({"name": "p__nothing", "arguments": {}}));
    admin.server.result_or_error(2);
    let browser = Browser::sign_in(&admin, "test");
    until_shown(&browser, "/refused", "<code>unknown_tool</code>");
    let page = browser.page("/plugins/p");
    assert!(page.contains("fs-read") && page.contains("sha256:"), "{page}");
    assert_eq!(browser.get("/plugins/nobody").status, 404);
}

#[test]
fn a_question_waits_for_the_operator() {
    let rule = "[limits]\nargs_bytes = \"8MiB\"\n[[rule]]\ntool = \"e__echo\"\naction = \"ask\"\n";
    let folder = AdminFixture::folder("", rule).with_plugin("e", guest_artifacts::API_ECHO);
    let mut admin = AdminFixture::start(folder);
    let alone = admin.call(1, "e__echo", &json!({}));
    assert!(alone.to_string().contains("no operator is there to ask"), "{alone}");

    let ask = |admin: &mut AdminFixture, id: u64, args: &Value| {
        admin.server.send(id, "tools/call", &json!({"name": "e__echo", "arguments": args}));
    };
    let question = |page: &str, verb: &str| {
        page.split('"')
            .find(|part| part.starts_with("/pending/questions/") && part.ends_with(verb))
            .unwrap()
            .to_owned()
    };
    let cookie = Browser::sign_in(&admin, "test").cookie;
    ask(&mut admin, 2, &json!({"text": "<b>\u{202e}hello"}));
    let browser = Browser { admin: &admin, cookie: cookie.clone() };
    let page = until_shown(&browser, "/pending", "Approve");
    assert!(
        page.contains("&lt;b&gt;\\u{202e}hello") && page.contains("rule 1 of the policy says `ask`"),
        "{page}"
    );
    // Which tool of which source, and who asks.
    for part in ["<h3>e__echo</h3>", "<p>plugin:e ", "<dd>t 1</dd>", "<dt>Session</dt>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    browser.act(&question(&page, "approve"), "");
    assert_eq!(admin.server.result(2)["isError"], json!(false));

    // Four megabytes. The page shows the beginning.
    ask(&mut admin, 3, &json!({"text": "x".repeat(4 << 20)}));
    let browser = Browser { admin: &admin, cookie };
    let page = until_shown(&browser, "/pending", "Approve");
    assert!(page.len() < 20_000 && page.contains("the rest is not shown"), "{}", page.len());
    browser.act(&question(&page, "refuse"), "reason=not+today");
    let result = admin.server.result(3);
    assert!(result["isError"] == json!(true) && result.to_string().contains("not today"), "{result}");
    let log = admin.desk.good(&["log", "--json"]);
    assert!(log.contains("\"action\":\"approve\"") && log.contains("\"action\":\"refuse\""), "{log}");
    assert!(log.contains("\"by\":\"host\""), "{log}");
}

/// Replaces the plugin `p` with another build.
fn build(folder: &HostFolder, mark: u8) {
    let mut bytes = fs::read(guest_artifacts::CAP_CONSENT).unwrap();
    bytes.extend([0, 3, 1, b'm', mark]);
    fs::write(folder.path("plugins/p.new"), bytes).unwrap();
    fs::rename(folder.path("plugins/p.new"), folder.path("plugins/p.wasm")).unwrap();
}

#[test]
fn a_held_plugin_is_granted_as_it_was_seen() {
    // The first version asks for none of it.
    let grant = "[plugins.p.grant]\nfs_read = [\"$workspace\"]\n";
    let folder = AdminFixture::folder("", grant).with_plugin("p", guest_artifacts::API_ECHO);
    let mut admin = AdminFixture::start(folder);
    assert_eq!(admin.call(1, "p__echo", &json!({}))["isError"], json!(false));
    build(&admin.desk, 2);
    admin.server.signal("HUP");
    let browser = Browser::sign_in(&admin, "test");
    let page = until_shown(&browser, "/pending", "Grant this version");
    assert!(page.contains("+ read: fs_read $workspace"), "{page}");
    until_shown(&browser, "/", " (1)</span>");
    let digest = page.split("name=\"digest\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    // Another build takes its place before the operator decides.
    build(&admin.desk, 3);
    let stale = browser.post("/pending/plugins/p/grant", &format!("digest={digest}"));
    assert!(stale.status == 409 && stale.body.contains("another version waits"), "{stale:?}");
    let page = browser.page("/pending");
    let digest = page.split("name=\"digest\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    browser.act("/pending/plugins/p/grant", &format!("digest={digest}"));
    let page = until_shown(&browser, "/pending", "No plugin waits");
    assert!(!page.contains(" (1)</span>"), "{page}");
    assert_eq!(admin.call(2, "p__plain", &json!({}))["isError"], json!(false));
    let granted = admin.desk.good(&["log", "--json", "--plugin", "p"]);
    assert!(
        granted.contains("\"event\":\"granted\"") && granted.contains("\"by\":\"token:oncall\""),
        "{granted}"
    );
    let browser = Browser::sign_in(&admin, "test");
    assert_eq!(browser.post("/pending/plugins/p/grant", "digest=x").status, 409, "nothing waits");
}

#[test]
fn tools_are_switched_and_tried() {
    let mut admin = AdminFixture::with_admin("");
    let cookie = Browser::sign_in(&admin, "test").cookie;
    let browser = Browser { admin: &admin, cookie: cookie.clone() };
    until_shown(&browser, "/tools", "e__echo");
    browser.act("/tools/e__echo/disable", "reason=broken");
    assert!(browser.page("/tools/e__echo").contains("broken"));
    assert!(browser.page("/tools?text=echo").contains("off: broken"));
    let off = admin.call(1, "e__echo", &json!({}));
    assert!(off.to_string().contains("broken"), "{off}");
    let browser = Browser { admin: &admin, cookie: cookie.clone() };
    browser.act("/tools/e__echo/enable", "");
    assert_eq!(browser.post("/tools/nobody/disable", "").status, 409);
    assert_eq!(browser.get("/tools/nobody").status, 404);

    let check = browser.post("/tools/e__echo/call", "arguments=%7B%22a%22%3A1%7D&mode=check");
    assert!(check.status == 200 && check.body.contains("passes all gates"), "{}", check.body);
    let run = browser.post("/tools/e__echo/call", "arguments=%7B%22a%22%3A%22%3Cb%3E%22%7D&mode=run");
    assert!(run.body.contains("&lt;b&gt;") && run.body.contains("fuel"), "{}", run.body);
    let denied = browser.post("/tools/e__long/call", "arguments=%7B%7D&mode=run");
    assert!(denied.body.contains("rule 1 of the policy says `deny`"), "{}", denied.body);
    let bad = browser.post("/tools/e__error/call", "field-0=&mode=run");
    assert_eq!(bad.status, 200);
    let log = admin.desk.good(&["log", "--json"]);
    assert!(log.contains("\"action\":\"disable\"") && log.contains("\"agent_id\":\"token:oncall\""), "{log}");
    // A session that makes calls has its sums.
    assert_eq!(admin.call(2, "e__echo", &json!({}))["isError"], json!(false));
}

#[test]
fn hostile_tools_stay_text() {
    let folder = AdminFixture::folder("", &server_section("evil", "markup"));
    let mut admin = AdminFixture::start(folder);
    let cookie = Browser::sign_in(&admin, "test").cookie;
    let browser = Browser { admin: &admin, cookie: cookie.clone() };
    until_shown(&browser, "/tools", "mcp__evil__show");
    admin.call(1, "mcp__evil__break", &json!({}));
    admin.server.send(2, "tools/call", &json!({"name": "<script>evil</script>\u{1b}[31m", "arguments": {}}));
    admin.server.result_or_error(2);
    let browser = Browser { admin: &admin, cookie };
    let tried = browser.post("/tools/mcp__evil__show/call", "mode=run").body;
    let pages = [
        "/",
        "/calls",
        "/refused",
        "/pending",
        "/tools",
        "/tools/mcp__evil__show",
        "/budgets",
        "/calls/1",
        "/calls/2",
    ];
    for page in pages.map(|path| browser.page(path)).into_iter().chain([tried]) {
        assert_eq!(page.matches("<script").count(), 1, "the page's own: {page}");
        assert!(!page.contains("<img") && !page.contains(['\u{1b}', '\u{202e}']), "{page}");
    }
    let shown = browser.page("/tools/mcp__evil__show");
    assert!(shown.contains("&lt;script&gt;document.title"), "{shown}");
}

#[test]
fn many_tools_are_paged_and_searched() {
    let folder = AdminFixture::folder("", &(server_section("a", "many") + &server_section("b", "many")));
    let admin = AdminFixture::start(folder);
    let browser = Browser::sign_in(&admin, "test");
    wait_until("ten thousand tools", || {
        let info = browser.get("/api/v1/server").json();
        info["tools"].as_u64().unwrap() >= 10_000
    });
    let first = browser.page("/tools");
    assert!(first.len() < 100 << 10 && first.contains("More tools"), "{}", first.len());
    let more = first.split('"').find(|part| part.starts_with("/tools?")).unwrap().replace("&amp;", "&");
    let second = browser.page(&more);
    assert!(
        first.contains(">mcp__a__tool_0<")
            && second.contains(">mcp__a__tool_1")
            && !second.contains(">mcp__a__tool_0<"),
        "{second}"
    );
    let found = browser.page("/tools?text=mcp__b__tool_4321");
    assert!(found.contains("mcp__b__tool_4321") && !found.contains("More tools"), "{found}");
}

#[test]
fn streams_are_limited_and_a_slow_reader_harms_nobody() {
    let mut admin = AdminFixture::with_admin("");
    let cookie = Browser::sign_in(&admin, "test").cookie;
    let open_from = |admin: &AdminFixture, cookie: &str, id: &str| {
        let mut stream = TcpStream::connect(&admin.address).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        let host = &admin.address;
        let head = format!(
            "GET /api/v1/events HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nlast-event-id: {id}\r\n{OWN}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let open = |admin: &AdminFixture| {
        let mut stream = TcpStream::connect(&admin.address).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        let head = format!(
            "GET /api/v1/events HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\n{OWN}\r\n",
            admin.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (line.split(' ').nth(1).unwrap().to_owned(), reader)
    };
    let mut streams: Vec<_> = (0..100).map(|_| open(&admin)).collect();
    let count = |status: &str| streams.iter().filter(|(got, _)| got == status).count();
    assert_eq!((count("200"), count("503")), (32, 68));
    // Nobody reads the others meanwhile.
    for id in 0..500 {
        assert_eq!(admin.call(10 + id, "e__echo", &json!({}))["isError"], json!(false));
    }
    let reader = streams.iter_mut().find(|(status, _)| status == "200").map(|(_, reader)| reader).unwrap();
    let calls = reader.lines().map_while(Result::ok).filter(|line| line.starts_with("data: ")).take(500);
    assert_eq!(calls.count(), 500);
    streams.truncate(20);
    wait_until("places are free", || open(&admin).0 == "200");
    // A browser that comes back names the last call that it saw.
    let resumed = open_from(&admin, &cookie, "499");
    let next: Vec<String> =
        resumed.lines().map_while(Result::ok).filter(|line| line.starts_with("id: ")).take(1).collect();
    assert_eq!(next, ["id: 500"]);
    let old = open_from(&admin, &cookie, "1");
    let lost = old.lines().map_while(Result::ok).find(|line| line.starts_with("data: ")).unwrap();
    assert_eq!(lost, "data: {\"calls\":299}");
    assert_eq!(Browser { admin: &admin, cookie: cookie.clone() }.get("/calls").status, 200);
    drop(streams);
    wait_until("a place is free again", || open(&admin).0 == "200");
}

#[test]
fn clients_that_send_nothing_make_room() {
    let admin = AdminFixture::with_admin("");
    let idle: Vec<TcpStream> = (0..140)
        .map(|_| {
            let mut stream = TcpStream::connect(&admin.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost:").unwrap();
            stream
        })
        .collect();
    // It waits for a place, and the idle ones lose theirs.
    assert_eq!(Browser::sign_in(&admin, "test").get("/").status, 200);
    drop(idle);
}

#[test]
fn a_restart_ends_sessions_and_keeps_the_stop() {
    let mut admin = AdminFixture::with_admin("");
    let cookie = {
        let browser = Browser::sign_in(&admin, "test");
        browser.act("/stop", "reason=incident");
        browser.cookie
    };
    admin.server.signal("TERM");
    admin.server.exit_code();
    let admin = AdminFixture::start(admin.desk);
    assert_eq!(Browser { admin: &admin, cookie }.get("/").status, 303, "sign in again");
    let browser = Browser::sign_in(&admin, "test");
    assert!(browser.page("/").contains("incident"));
    browser.act("/resume", "");
    assert!(!browser.page("/").contains("incident"));
}
