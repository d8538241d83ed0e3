//! The schema of a struct or an enum, as serde reads and writes it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Result;

use super::attributes::FieldDefault;
use super::model::{Container, DataContent, DataKind, Field, Variant};
use crate::limits;

pub(super) fn implement(container: &Container) -> Result<TokenStream> {
    let (name, description) = (container.ident.to_string(), &container.description);
    let shape = match &container.kind {
        DataKind::Struct(content) => content_shape(container, content)?,
        DataKind::Enum(variants) => enum_shape(container, variants)?,
    };
    let header =
        container.header(&quote!(::toolbay_sdk::schema::Schema), &quote!(::toolbay_sdk::schema::Schema));
    Ok(quote! {
        #header {
            const SCHEMA: ::toolbay_sdk::schema::Node = ::toolbay_sdk::schema::Node {
                name: #name,
                description: #description,
                shape: #shape,
            };
        }
    })
}

/// The shape of the content of a struct or a variant.
fn content_shape(container: &Container, content: &DataContent) -> Result<TokenStream> {
    let shape = quote!(::toolbay_sdk::schema::SchemaShape);
    match content {
        DataContent::Unit => Ok(quote!(#shape::Null)),
        DataContent::Tuple(fields) => {
            let types: Vec<_> =
                fields.iter().map(|field| field.options.with.as_ref().unwrap_or(&field.ty)).collect();
            Ok(match types.as_slice() {
                [only] => quote!(#shape::Same(::toolbay_sdk::schema::of::<#only>)),
                types => quote!(#shape::Tuple(&[#(::toolbay_sdk::schema::of::<#types>),*])),
            })
        }
        DataContent::Named(fields) => {
            if let (true, [only]) = (container.options.transparent, fields.as_slice()) {
                let ty = &only.ty;
                return Ok(quote!(#shape::Same(::toolbay_sdk::schema::of::<#ty>)));
            }
            object(container, Vec::new(), fields)
        }
    }
}

/// An object with some members before its fields.
fn object(container: &Container, first: Vec<TokenStream>, fields: &[Field]) -> Result<TokenStream> {
    let mut members = first;
    for field in fields {
        members.push(member(container, field)?);
    }
    let closed = container.options.deny_unknown_fields;
    Ok(quote!(::toolbay_sdk::schema::SchemaShape::Object { fields: &[#(#members),*], closed: #closed }))
}

fn member(container: &Container, field: &Field) -> Result<TokenStream> {
    let Field { name, description, options, .. } = field;
    let ty = options.with.as_ref().unwrap_or(&field.ty);
    let limits = limits::tokens(&options.limits);
    let has_default = options.default.is_some() || container.options.default;
    let input = presence(options.never_read, has_default);
    let output = presence(options.never_written, options.skip_if.is_some());
    let default = default(container, field);
    let flatten = options.flatten;
    Ok(quote! {
        ::toolbay_sdk::schema::Field {
            description: #description,
            limits: #limits,
            default: #default,
            input: #input,
            output: #output,
            flatten: #flatten,
            ..::toolbay_sdk::schema::Field::new(#name, ::toolbay_sdk::schema::of::<#ty>)
        }
    })
}

fn presence(never: bool, optional: bool) -> TokenStream {
    let presence = match (never, optional) {
        (true, _) => quote!(Absent),
        (false, true) => quote!(Optional),
        (false, false) => quote!(Required),
    };
    quote!(::toolbay_sdk::schema::Presence::#presence)
}

/// The default of the field, computed at run time because only the type knows it.
fn default(container: &Container, field: &Field) -> TokenStream {
    let none = quote!(::toolbay_sdk::schema::DefaultValue::None);
    let (ident, ty) = (&field.ident, &field.ty);
    let value = match &field.options.default {
        // The JSON of a type parameter is unknown.
        _ if !container.generics.params.is_empty() => return none,
        Some(FieldDefault::Type) => quote!(<#ty as ::core::default::Default>::default()),
        Some(FieldDefault::Function(path)) => quote!(#path()),
        None if container.options.default && ident.is_some() => {
            quote!(<Self as ::core::default::Default>::default().#ident)
        }
        None => return none,
    };
    let unless = field.options.skip_if.as_ref().map(|skip| {
        quote! {
            if #skip(&value) {
                return ::core::option::Option::None;
            }
        }
    });
    quote! {
        ::toolbay_sdk::schema::DefaultValue::Made(|| {
            let value: #ty = #value;
            #unless
            ::toolbay_sdk::__private::default_json(&value)
        })
    }
}

fn enum_shape(container: &Container, variants: &[Variant]) -> Result<TokenStream> {
    let shape = quote!(::toolbay_sdk::schema::SchemaShape);
    let options = &container.options;
    let is_plain =
        |variant: &&Variant| matches!(variant.content, DataContent::Unit) && variant.description.is_empty();
    let external = options.tag.is_none() && !options.untagged;
    let plain: Vec<_> = variants.iter().filter(|variant| external && is_plain(variant)).collect();
    let names = plain.iter().map(|variant| &variant.name);
    let listed = quote!(#shape::Enum(&[#(#names),*]));
    if plain.len() == variants.len() && external {
        return Ok(listed);
    }
    let mut nodes = Vec::new();
    if !plain.is_empty() {
        nodes.push(quote!(::toolbay_sdk::schema::Node::new(#listed)));
    }
    for variant in variants.iter().filter(|variant| !(external && is_plain(variant))) {
        let (description, shape) = (&variant.description, variant_shape(container, variant)?);
        nodes.push(quote! {
            ::toolbay_sdk::schema::Node { name: "", description: #description, shape: #shape }
        });
    }
    Ok(if options.untagged {
        quote!(#shape::AnyOf(&[#(#nodes),*]))
    } else {
        quote!(#shape::OneOf(&[#(#nodes),*]))
    })
}

fn variant_shape(container: &Container, variant: &Variant) -> Result<TokenStream> {
    let Variant { name, content, .. } = variant;
    let content_of = |content| content_shape(container, content);
    let field = |name: &str, shape: &TokenStream| {
        quote! {
            ::toolbay_sdk::schema::Field::new(#name, || const {
                &::toolbay_sdk::schema::Node { name: "", description: "", shape: #shape }
            })
        }
    };
    let constant = quote!(::toolbay_sdk::schema::SchemaShape::Const(#name));
    let object_of = |fields: &[TokenStream], closed: bool| quote!(::toolbay_sdk::schema::SchemaShape::Object { fields: &[#(#fields),*], closed: #closed });
    let options = &container.options;
    match (&options.tag, &options.content) {
        _ if options.untagged => content_of(content),
        (None, _) => match content {
            DataContent::Unit => Ok(constant),
            content => Ok(object_of(&[field(name, &content_of(content)?)], true)),
        },
        (Some(tag), None) => {
            let tag = field(tag, &constant);
            match content {
                DataContent::Unit => Ok(object_of(&[tag], options.deny_unknown_fields)),
                DataContent::Named(fields) => object(container, vec![tag], fields),
                DataContent::Tuple(fields) => {
                    let types = fields.iter().map(|field| &field.ty);
                    let inner = quote! {
                        #(::toolbay_sdk::schema::Field {
                            flatten: true,
                            ..::toolbay_sdk::schema::Field::new("", ::toolbay_sdk::schema::of::<#types>)
                        })*
                    };
                    Ok(object_of(&[tag, inner], false))
                }
            }
        }
        (Some(tag), Some(key)) => {
            let tag = field(tag, &constant);
            match content {
                DataContent::Unit => Ok(object_of(&[tag], options.deny_unknown_fields)),
                content => {
                    let inner = field(key, &content_of(content)?);
                    Ok(object_of(&[tag, inner], options.deny_unknown_fields))
                }
            }
        }
    }
}
