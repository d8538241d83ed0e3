//! A component that reads its settings through `wasi:config`.

wit_bindgen::generate!({
    inline: r#"
        package stranger:settings;

        world settings {
            import wasi:config/store@0.2.0-rc.1;
            export setting: func(key: string) -> result<option<string>, string>;
            export settings: func() -> list<tuple<string, string>>;
        }

        package wasi:config@0.2.0-rc.1 {
            interface store {
                variant error { upstream(string), io(string) }
                get: func(key: string) -> result<option<string>, error>;
                get-all: func() -> result<list<tuple<string, string>>, error>;
            }
        }
    "#,
    generate_all,
});

use wasi::config::store;

struct Settings;

impl Guest for Settings {
    fn setting(key: String) -> Result<Option<String>, String> {
        store::get(&key).map_err(|error| format!("{error:?}"))
    }
    fn settings() -> Vec<(String, String)> {
        store::get_all().unwrap_or_default()
    }
}

export!(Settings);
