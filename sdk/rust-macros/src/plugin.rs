//! `plugin!`: the component's exports, one for each list.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{LitBool, LitStr, Path, Result, Token, Type};
use toolbay_sdk_syntax::options::option;
use toolbay_sdk_syntax::suggestion;

use crate::capability::list;
use crate::offers;

/// The keys of `plugin!`.
const KEYS: [&str; 7] = ["tools", "async_tools", "reducers", "available", "offers", "config", "reusable"];

/// The content of `plugin! { … }`.
#[derive(Debug, Default)]
struct PluginLists {
    tools: Vec<Path>,
    async_tools: Vec<Path>,
    reducers: Vec<Path>,
    available: Option<Path>,
    offers: Option<LitStr>,
    config: Option<Type>,
    reusable: bool,
}

impl Parse for PluginLists {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut lists = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![:]>()?;
            match key.to_string().as_str() {
                "tools" => lists.tools = list(input)?,
                "async_tools" => lists.async_tools = list(input)?,
                "reducers" => lists.reducers = list(input)?,
                "available" => lists.available = Some(input.parse()?),
                "offers" => lists.offers = Some(input.parse()?),
                "config" => lists.config = Some(input.parse()?),
                "reusable" => lists.reusable = input.parse::<LitBool>()?.value,
                _ => {
                    let message = format!(
                        "unknown list `{key}`{}; known are `tools: […]`, `async_tools: […]`, `reducers: […]`, \
                         `available: function`, `offers: \"FILE\"`, `config: TYPE` and `reusable: true`",
                        suggestion::of(&key.to_string(), KEYS)
                    );
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(lists)
    }
}

impl PluginLists {
    /// Refuses a plugin without a list, or with two lists of tools.
    fn check(&self) -> Result<()> {
        let message = match (self.tools.is_empty(), self.async_tools.is_empty(), self.reducers.is_empty()) {
            (true, true, true) => {
                "a plugin has tools or reducers: write `plugin! { tools: [first, second] }`"
            }
            (false, false, _) => {
                "a plugin has `tools` or `async_tools`, not both: `async_tools` takes all functions"
            }
            _ => return Ok(()),
        };
        Err(syn::Error::new(Span::call_site(), message))
    }
}

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let lists: PluginLists = syn::parse2(input)?;
    lists.check()?;
    let PluginLists { tools, async_tools, reducers, available, offers, config, reusable } = lists;
    let (tools, export) = match async_tools.is_empty() {
        true => (tools, quote!(export_tools!(Tools with_types_in ::toolbay_sdk::__private::tools_world))),
        false => (
            async_tools,
            quote!(export_async_tools!(Tools with_types_in ::toolbay_sdk::__private::async_tools_world)),
        ),
    };
    let config = option(config.map(|ty| quote!(::toolbay_sdk::schema::of::<#ty>)));
    let (names, of_tools) = (&tools, &tools);
    let offers = offers.as_ref().map(offers::expand).transpose()?;
    let tools_export = (!tools.is_empty()).then(|| {
        quote! {
            impl ::toolbay_sdk::__private::ToolPlugin for ToolbayPlugin {
                const TOOLS: &'static [&'static [::toolbay_sdk::__private::ToolSpec]] =
                    &[#(<#tools as ::toolbay_sdk::__private::Toolset>::TOOLS),*];
            }
            const _: () = ::toolbay_sdk::__private::check_names(&[
                #(<#names as ::toolbay_sdk::__private::Toolset>::TOOLS),*
            ]);
            #[cfg(target_family = "wasm")]
            type Tools = ::toolbay_sdk::__private::ExportedTools<ToolbayPlugin>;
            #[cfg(target_family = "wasm")]
            ::toolbay_sdk::__private::#export;
        }
    });
    let reducers_export = (!reducers.is_empty()).then(|| reducers_export(&reducers));
    let availability_export = available.as_ref().map(availability_export);

    Ok(quote! {
        #[doc(hidden)]
        #[derive(Debug)]
        pub struct ToolbayPlugin {}

        const _: () = {
            impl ::toolbay_sdk::__private::AboutPlugin for ToolbayPlugin {
                const ABOUT: ::toolbay_sdk::__private::AboutSpec = ::toolbay_sdk::__private::AboutSpec {
                    name: env!("CARGO_PKG_NAME"),
                    version: env!("CARGO_PKG_VERSION"),
                    description: env!("CARGO_PKG_DESCRIPTION"),
                    authors: env!("CARGO_PKG_AUTHORS"),
                    license: env!("CARGO_PKG_LICENSE"),
                    homepage: env!("CARGO_PKG_HOMEPAGE"),
                    source: env!("CARGO_PKG_REPOSITORY"),
                    config: #config,
                    reusable: #reusable,
                    of_tools: &[#(<#of_tools as ::toolbay_sdk::__private::Toolset>::SETTINGS),*],
                };
            }
            #[cfg(target_family = "wasm")]
            type About = ::toolbay_sdk::__private::ExportedAbout<ToolbayPlugin>;
            #[cfg(target_family = "wasm")]
            ::toolbay_sdk::__private::export_about!(About with_types_in ::toolbay_sdk::__private::about_world);

            #tools_export
            #reducers_export
            #availability_export
            #offers
        };
    })
}

fn reducers_export(reducers: &[Path]) -> TokenStream {
    quote! {
        impl ::toolbay_sdk::__private::ReducerPlugin for ToolbayPlugin {
            const REDUCERS: &'static [::toolbay_sdk::__private::ReducerSpec] =
                &[#(<#reducers as ::toolbay_sdk::__private::Reducer>::SPEC),*];
        }
        #[cfg(target_family = "wasm")]
        type Reducers = ::toolbay_sdk::__private::ExportedReducers<ToolbayPlugin>;
        #[cfg(target_family = "wasm")]
        ::toolbay_sdk::__private::export_reducers!(Reducers with_types_in ::toolbay_sdk::__private::reducers_world);
    }
}

fn availability_export(check: &Path) -> TokenStream {
    quote! {
        impl ::toolbay_sdk::__private::AvailabilityPlugin for ToolbayPlugin {
            const CHECK: fn(&str) -> ::core::result::Result<(), ::std::string::String> = #check;
        }
        #[cfg(target_family = "wasm")]
        type Availability = ::toolbay_sdk::__private::ExportedAvailability<ToolbayPlugin>;
        #[cfg(target_family = "wasm")]
        ::toolbay_sdk::__private::export_availability!(
            Availability with_types_in ::toolbay_sdk::__private::availability_world
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_exported() {
        let tokens = expand(quote!(reducers: [head,],)).unwrap().to_string();
        assert!(tokens.contains("export_reducers") && tokens.contains("export_about"), "{tokens}");
        assert!(!tokens.contains("export_tools"), "{tokens}");
    }

    #[test]
    fn asynchronous_tools_have_an_export_of_their_own() {
        let tokens = expand(quote!(async_tools: [a])).unwrap().to_string();
        assert!(tokens.contains("export_async_tools") && tokens.contains("ToolPlugin"), "{tokens}");
        assert!(!tokens.contains("export_tools"), "{tokens}");
        let message = expand(quote!(tools: [a], async_tools: [b])).unwrap_err().to_string();
        assert!(message.contains("not both"), "{message}");
    }

    #[test]
    fn a_check_is_exported_if_there_is_one() {
        let with = expand(quote!(tools: [a], available: checks::all)).unwrap().to_string();
        assert!(with.contains("export_availability") && with.contains("checks :: all"), "{with}");
        assert!(!expand(quote!(tools: [a])).unwrap().to_string().contains("export_availability"));
    }

    #[test]
    fn a_plugin_is_reusable_only_if_it_says_so() {
        let text = |tokens| expand(tokens).unwrap().to_string();
        assert!(text(quote!(tools: [a], reusable: true)).contains("reusable : true"));
        assert!(text(quote!(tools: [a])).contains("reusable : false"));
        assert!(expand(quote!(tools: [a], reusable: 1)).is_err());
    }

    #[test]
    fn an_unknown_list_names_the_known_ones() {
        let message = expand(quote!(tool: [a])).unwrap_err().to_string();
        assert!(message.contains("`tools: […]`"), "{message}");
    }
}
