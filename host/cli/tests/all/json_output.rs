//! `--json`: stdout is one JSON document, for results and for errors.

use serde_json::{Value, json};

use crate::fixture::HostFolder;

fn folder() -> HostFolder {
    HostFolder::new("workspace = \"work\"\n").with_plugin("text", guest_artifacts::PLUGIN_TEXT)
}

/// Runs a command that ends with this code and prints one JSON document.
fn document(folder: &HostFolder, code: i32, args: &[&str]) -> Value {
    folder.run(&[args, &["--json"]].concat()).says(code, &[]).json()
}

#[test]
fn switches_print_the_changed_tools() {
    let folder = folder();
    let disabled = document(&folder, 0, &["disable", "text__diff", "--reason", "a week"]);
    assert_eq!(disabled, json!({"changed": [{"tool": "text__diff", "disabled_reason": "a week"}]}));
    assert_eq!(
        document(&folder, 0, &["disable", "text__diff", "--reason", "a week"]),
        json!({"changed": []})
    );
    let enabled = document(&folder, 0, &["enable", "text__diff"]);
    assert_eq!(enabled, json!({"changed": [{"tool": "text__diff", "disabled_reason": null}]}));
    let error = document(&folder, 1, &["enable", "text__dif"]);
    assert!(error["error"]["help"][0].as_str().unwrap().contains("did you mean"), "{error}");
}

#[test]
fn servers_and_services_print_their_lines() {
    let folder = folder();
    let before = folder.read("toolbay.toml");
    let add = ["mcp", "add", "web", "https://mcp.example.com/mcp"];
    let shown = document(&folder, 0, &[&add[..], &["--dry-run"]].concat());
    assert_eq!((&shown["written"], folder.read("toolbay.toml")), (&json!(false), before.clone()));
    let written = document(&folder, 0, &add);
    assert_eq!(written["lines"], json!(["[mcp.web]", "url = \"https://mcp.example.com/mcp\""]), "{written}");
    assert_eq!(document(&folder, 1, &add)["error"]["code"], "exists");
    let removed = document(&folder, 0, &["mcp", "remove", "web"]);
    assert_eq!((&removed["removed"], &removed["written"]), (&json!(["[mcp.web]"]), &json!(true)));

    let pets = json!({"openapi": "3.0.3", "info": {"title": "Pets"}, "servers": [{"url": "https://a.example"}],
        "paths": {"/pets": {"get": {"operationId": "listPets"}}}});
    std::fs::write(folder.path("work/pets.json"), pets.to_string()).unwrap();
    let add = ["openapi", "add", "pets", "pets.json"];
    assert_eq!(document(&folder, 2, &add)["error"]["code"], "usage", "there is no terminal");
    assert_eq!(document(&folder, 0, &[&add[..], &["--dry-run"]].concat())["added"], json!(false));
    let added = document(&folder, 0, &[&add[..], &["--yes"]].concat());
    assert_eq!((&added["added"], &added["lines"][0]), (&json!(true), &json!("[openapi.pets]")));
    let removed = document(&folder, 0, &["openapi", "remove", "pets", "--yes"]);
    assert_eq!((&removed["removed"], &removed["lines"][0]), (&json!(true), &json!("[openapi.pets]")));
    assert_eq!(
        document(&folder, 1, &["openapi", "remove", "pets", "--yes"])["error"]["code"],
        "unknown_service"
    );
}

#[test]
fn commands_for_authors_keep_the_output_of_programs_off_stdout() {
    let folder = folder();
    let made = document(&folder, 0, &["new", "notes", "--lang", "python"]);
    assert_eq!(made["next"][0], "cd notes");
    assert!(made["next"][1].as_str().unwrap().contains(".venv"), "{made}");
    assert_eq!(document(&folder, 1, &["new", "notes"])["error"]["code"], "exists");

    folder.stub_project("text", guest_artifacts::PLUGIN_TEXT);
    let built = document(&folder, 0, &["build", "text", "--replace"]);
    assert_eq!(built["installed"], json!(folder.path("plugins/text.wasm")), "{built}");
    assert_eq!(document(&folder, 0, &["build", "text", "--no-install"])["installed"], json!(null));
    let tested = document(&folder, 0, &["test", "text"]);
    assert_eq!((&tested["plugin"], &tested["failed"]), (&json!("text"), &json!(0)), "{tested}");
    let packed = document(&folder, 0, &["pack", "text"]);
    assert_eq!((&packed["file"], &packed["missing"][0]), (&json!("text.wasm"), &json!("licenses")));
    std::fs::write(folder.path("work/text/vendor/toolbay/build.py"), "print('no')\nraise SystemExit(1)")
        .unwrap();
    for command in ["build", "test", "pack"] {
        assert_eq!(document(&folder, 1, &[command, "text"])["error"]["code"], "build_failed", "{command}");
    }
}

#[test]
fn other_commands_print_one_document() {
    let folder = folder();
    let pages = document(&folder, 0, &["docs", "text"]);
    assert!(pages["pages"]["diff"].as_str().unwrap().starts_with("# diff"), "{pages}");
    let files = document(&folder, 0, &["docs", "text", "--out", "pages"]);
    assert!(files["files"].as_array().unwrap().contains(&json!("pages/diff.md")), "{files}");
    let client = ["setup", "codex", "--file", "codex.toml"];
    let shown = document(&folder, 0, &client);
    assert_eq!((&shown["written"], &shown["entry"]["args"][0]), (&json!(false), &json!("serve")));
    assert_eq!(document(&folder, 0, &[&client[..], &["--write"]].concat())["written"], json!(true));
    assert_eq!(document(&folder, 0, &[&client[..], &["--write"]].concat())["written"], json!(false));
    assert_eq!(document(&folder, 1, &["schemas", "no_tool", "neither"])["error"]["code"], "unknown_tool");
    assert!(document(&folder, 0, &["policy", "schema"]).is_object());
    let failed = document(&folder, 1, &["bench", "text__word_count", "{}"]);
    assert_eq!(failed["error"]["code"], "input_invalid", "{failed}");
}

#[test]
fn a_saved_output_is_printed_as_json() {
    let folder = HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO);
    let text = "line\n".repeat(200);
    let args = json!({"text": text}).to_string();
    let called = document(&folder, 0, &["call", "e__echo", &args, "--session", "s", "--budget", "100"]);
    let id = called["kept"][0]["id"].as_str().unwrap_or_else(|| panic!("{called}"));
    let output = document(&folder, 0, &["output", "--session", "s", id]);
    assert_eq!((&output["id"], &output["tool"]), (&json!(id), &json!("e__echo")));
    assert!(output["text"].as_str().unwrap().len() > 1000, "{output}");
    let error = document(&folder, 1, &["output", "--session", "s", "nothing"]);
    assert_eq!(error["error"]["code"], "unknown_output");
}
