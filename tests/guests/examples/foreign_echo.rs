//! The smallest component with plain WIT. Every host of such components can run it, to measure the host.

wit_bindgen::generate!({
    inline: r#"
        package stranger:mountain;

        world echo {
            export echo: func(text: string) -> string;
        }
    "#,
});

struct Mountain;

impl Guest for Mountain {
    fn echo(text: String) -> String {
        text
    }
}

export!(Mountain);
