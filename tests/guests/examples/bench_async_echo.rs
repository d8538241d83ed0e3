//! The smallest component with an asynchronous function: `foreign_echo` on WASI 0.3, to measure the host.

wit_bindgen::generate!({
    inline: r#"
        package stranger:valley;

        world echo {
            export echo: async func(text: string) -> string;
        }
    "#,
});

struct Valley;

impl Guest for Valley {
    async fn echo(text: String) -> String {
        text
    }
}

export!(Valley);
