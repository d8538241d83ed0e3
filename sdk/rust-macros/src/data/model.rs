//! A struct or an enum in terms of its JSON.

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Fields, Generics, Result, Token, Type, TypeParamBound};
use toolbay_sdk_syntax::docs;

use super::attributes::{ContainerOptions, FieldOptions, VariantOptions};
use super::rename::RenameRule;

/// The item that `#[data]` annotates.
pub(super) struct Container {
    pub(super) ident: Ident,
    pub(super) generics: Generics,
    pub(super) description: String,
    pub(super) options: ContainerOptions,
    pub(super) kind: DataKind,
}

/// A struct or an enum.
pub(super) enum DataKind {
    Struct(DataContent),
    Enum(Vec<Variant>),
}

/// The content of a struct or a variant.
pub(super) enum DataContent {
    Unit,
    Tuple(Vec<Field>),
    Named(Vec<Field>),
}

/// A field.
pub(super) struct Field {
    /// The name in the source. Fields of tuples have none.
    pub(super) ident: Option<Ident>,
    /// The name in the JSON.
    pub(super) name: String,
    pub(super) description: String,
    pub(super) ty: Type,
    pub(super) options: FieldOptions,
}

/// A variant.
pub(super) struct Variant {
    pub(super) ident: Ident,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) content: DataContent,
    pub(super) by_serde: bool,
}

impl Container {
    /// Parses the item and removes our attributes from it.
    pub(super) fn take(item: &mut DeriveInput) -> Result<Self> {
        let options = ContainerOptions::take(&mut item.attrs)?;
        let kind = match &mut item.data {
            Data::Struct(data) => DataKind::Struct(DataContent::take(&mut data.fields, options.rename_all)?),
            Data::Enum(data) => {
                let variants = data.variants.iter_mut().map(|variant| Variant::take(variant, &options));
                DataKind::Enum(variants.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
            }
            Data::Union(data) => {
                return Err(syn::Error::new(data.union_token.span, "a union has no JSON: use an enum"));
            }
        };
        Ok(Self {
            ident: item.ident.clone(),
            generics: item.generics.clone(),
            description: docs::text(&item.attrs).unwrap_or_default(),
            options,
            kind,
        })
    }

    /// Returns `impl<…> TRAIT for TYPE<…> where …`, with a bound for each type parameter.
    pub(super) fn header(&self, name: &TokenStream, bound: &TokenStream) -> TokenStream {
        let mut generics = self.generics.clone();
        let bounds: Punctuated<TypeParamBound, Token![+]> = syn::parse_quote!(#bound);
        for parameter in generics.type_params_mut() {
            parameter.bounds.extend(bounds.clone());
        }
        let (impl_generics, _, clause) = generics.split_for_impl();
        let (_, type_generics, _) = self.generics.split_for_impl();
        let ident = &self.ident;
        quote::quote!(impl #impl_generics #name for #ident #type_generics #clause)
    }
}

impl Variant {
    /// `None`: the field is never in the JSON.
    fn take(variant: &mut syn::Variant, container: &ContainerOptions) -> Result<Option<Self>> {
        let options = VariantOptions::take(&mut variant.attrs)?;
        if options.skip {
            return Ok(None);
        }
        let source = variant.ident.unraw().to_string();
        let renamed = || container.rename_all.map_or_else(|| source.clone(), |rule| rule.variant(&source));
        let fields = options.rename_all.or(container.rename_all_fields);
        Ok(Some(Self {
            ident: variant.ident.clone(),
            name: options.rename.clone().unwrap_or_else(renamed),
            description: docs::text(&variant.attrs).unwrap_or_default(),
            content: DataContent::take(&mut variant.fields, fields)?,
            by_serde: options.by_serde,
        }))
    }
}

impl DataContent {
    fn take(fields: &mut Fields, rule: Option<RenameRule>) -> Result<Self> {
        Ok(match fields {
            Fields::Unit => Self::Unit,
            Fields::Unnamed(fields) => Self::Tuple(take_all(&mut fields.unnamed, rule)?),
            Fields::Named(fields) => Self::Named(take_all(&mut fields.named, rule)?),
        })
    }
}

fn take_all<'a>(
    fields: impl IntoIterator<Item = &'a mut syn::Field>,
    rule: Option<RenameRule>,
) -> Result<Vec<Field>> {
    fields.into_iter().map(|field| Field::take(field, rule)).collect()
}

impl Field {
    fn take(field: &mut syn::Field, rule: Option<RenameRule>) -> Result<Self> {
        let options = FieldOptions::take(&mut field.attrs)?;
        let source = field.ident.as_ref().map(|ident| ident.unraw().to_string()).unwrap_or_default();
        let renamed = || rule.map_or_else(|| source.clone(), |rule| rule.field(&source));
        let description = options.description.clone().or_else(|| docs::text(&field.attrs));
        Ok(Self {
            ident: field.ident.clone(),
            name: options.rename.clone().unwrap_or_else(renamed),
            description: description.unwrap_or_default(),
            ty: field.ty.clone(),
            options,
        })
    }
}
