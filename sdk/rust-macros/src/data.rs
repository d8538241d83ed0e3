//! `#[data]`: the derives of serde, the schema, and the code that reads the type as an argument.

mod attributes;
mod model;
mod read;
mod rename;
mod schema;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Result};

use model::Container;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !options.is_empty() {
        let message = "`#[data]` takes no options; `#[serde(…)]` and `#[schemars(…)]` go below it";
        return Err(syn::Error::new_spanned(options, message));
    }
    let mut item: DeriveInput = syn::parse2(item)?;
    let container = Container::take(&mut item)?;
    let schema = schema::implement(&container)?;
    let argument = read::implement(&container);
    Ok(quote! {
        #[derive(::toolbay_sdk::__private::serde::Serialize, ::toolbay_sdk::__private::serde::Deserialize)]
        #[serde(crate = "::toolbay_sdk::__private::serde")]
        #item

        #schema
        #argument
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(item: TokenStream) -> String {
        expand(TokenStream::new(), item).unwrap().to_string()
    }

    #[test]
    fn plain_types_are_read_without_serde() {
        let plain = expanded(quote! {
            #[serde(rename_all = "camelCase")]
            struct Location {
                /// Its name.
                first_name: String,
                #[serde(default)]
                zip: Option<u32>,
            }
        });
        assert!(plain.contains("\"firstName\"") && plain.contains("take_or"), "{plain}");
        assert!(!plain.contains("read_by_serde"), "{plain}");
        let choice = expanded(quote!(
            enum Scale {
                Celsius,
                Fahrenheit,
            }
        ));
        assert!(choice.contains("read_choice") && choice.contains("SchemaShape :: Enum"), "{choice}");
    }

    #[test]
    fn what_only_serde_understands_is_left_to_serde() {
        for item in [
            quote!(
                enum Shape {
                    Circle(f64),
                    Square { side: f64 },
                }
            ),
            quote!(
                struct Id(u64);
            ),
            quote!(
                struct Page {
                    #[serde(flatten)]
                    rest: Rest,
                }
            ),
            quote!(
                struct Page {
                    #[serde(alias = "y")]
                    x: u8,
                }
            ),
            quote!(
                #[serde(default)]
                struct Page {
                    x: u8,
                }
            ),
        ] {
            let tokens = expanded(item);
            assert!(tokens.contains("read_by_serde"), "{tokens}");
        }
    }

    #[test]
    fn attributes_of_schemas_do_not_stay() {
        let tokens = expanded(quote! {
            struct Page { #[schemars(range(min = 1, max = LIMIT), description = "Which.")] number: u8 }
        });
        assert!(!tokens.contains("# [schemars"), "{tokens}");
        assert!(tokens.contains("Limit :: Json (\"1\")") && tokens.contains("(LIMIT) as i64"), "{tokens}");
        assert!(tokens.contains("\"Which.\""), "{tokens}");
    }

    #[test]
    fn what_a_schema_can_not_say_is_an_error_that_tells_the_way_out() {
        for item in [
            quote!(
                #[serde(from = "String")]
                struct Day {
                    x: u8,
                }
            ),
            quote!(
                struct Day {
                    #[serde(rename(serialize = "a"))]
                    x: u8,
                }
            ),
            quote!(
                struct Day {
                    #[schemars(title = "x")]
                    x: u8,
                }
            ),
        ] {
            let message = expand(TokenStream::new(), item).unwrap_err().to_string();
            assert!(
                message.contains("toolbay_sdk::schema::Schema") || message.contains("known are"),
                "{message}"
            );
        }
    }
}
