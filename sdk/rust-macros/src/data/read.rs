//! The code that reads a struct or an enum as an argument: generated for plain forms, through serde for all others.

use proc_macro2::TokenStream;
use quote::quote;

use super::attributes::FieldDefault;
use super::model::{Container, DataContent, DataKind, Field, Variant};

pub(super) fn implement(container: &Container) -> TokenStream {
    // A type that borrows from its JSON does not outlive it.
    if container.generics.lifetimes().next().is_some() {
        return TokenStream::new();
    }
    let by_serde = || {
        let bound = quote! {
            ::toolbay_sdk::schema::Schema + ::toolbay_sdk::__private::serde::de::DeserializeOwned
        };
        (bound, quote!(::toolbay_sdk::__private::read_by_serde(json)))
    };
    let own = |body| (quote!(::toolbay_sdk::argument::Argument), body);
    let (bound, body) = match plain(container) {
        Some(PlainData::Named(fields)) => own(read_object(container, fields)),
        Some(PlainData::Choice(variants)) => own(read_choice(variants)),
        None => by_serde(),
    };
    let header = container.header(&quote!(::toolbay_sdk::argument::Argument), &bound);
    quote! {
        #header {
            fn read(json: &mut ::toolbay_sdk::argument::JsonReader<'_>) -> ::toolbay_sdk::Result<Self> {
                #body
            }
        }
    }
}

/// Forms that do not need serde.
enum PlainData<'a> {
    Named(&'a [Field]),
    Choice(&'a [Variant]),
}

fn plain(container: &Container) -> Option<PlainData<'_>> {
    let options = &container.options;
    let tagged = options.tag.is_some() || options.untagged;
    if options.by_serde || options.default || options.transparent || tagged {
        return None;
    }
    match &container.kind {
        DataKind::Struct(DataContent::Named(fields)) => {
            fields.iter().all(|field| !field.options.by_serde).then_some(PlainData::Named(fields))
        }
        DataKind::Struct(_) => None,
        DataKind::Enum(variants) => {
            let is_plain =
                |variant: &Variant| matches!(variant.content, DataContent::Unit) && !variant.by_serde;
            (!variants.is_empty() && variants.iter().all(is_plain)).then_some(PlainData::Choice(variants))
        }
    }
}

fn read_object(container: &Container, fields: &[Field]) -> TokenStream {
    let read = fields.iter().filter(|field| !field.options.never_read);
    let names = read.clone().map(|field| &field.name);
    let unknown = if container.options.deny_unknown_fields { quote!(Refused) } else { quote!(Skipped) };
    let mut place = 0_usize;
    let values = fields.iter().map(|field| {
        let (ident, default) = (&field.ident, field.options.default.as_ref().map(default_of));
        let or_default = quote!(::core::default::Default::default);
        if field.options.never_read {
            let default = default.unwrap_or(or_default);
            return quote!(#ident: #default());
        }
        let value = match default {
            Some(default) => quote!(__members.take_or(#place, #default)?),
            None => quote!(__members.take(#place)?),
        };
        place += 1;
        quote!(#ident: #value)
    });
    let values: Vec<_> = values.collect();
    quote! {
        let __members = ::toolbay_sdk::__private::Members::read(
            json, &[#(#names),*], ::toolbay_sdk::__private::UnknownMembers::#unknown,
        )?;
        ::core::result::Result::Ok(Self { #(#values),* })
    }
}

fn default_of(default: &FieldDefault) -> TokenStream {
    match default {
        FieldDefault::Type => quote!(::core::default::Default::default),
        FieldDefault::Function(path) => quote!(#path),
    }
}

fn read_choice(variants: &[Variant]) -> TokenStream {
    let names = variants.iter().map(|variant| &variant.name);
    let (last, others) = match variants.split_last() {
        Some((last, others)) => (&last.ident, others),
        None => return TokenStream::new(),
    };
    let arms = others.iter().enumerate().map(|(place, variant)| {
        let ident = &variant.ident;
        quote!(#place => Self::#ident)
    });
    quote! {
        ::core::result::Result::Ok(
            match ::toolbay_sdk::__private::read_choice(json, &[#(#names),*])? {
                #(#arms,)*
                _ => Self::#last,
            }
        )
    }
}
