/** JSON Schemas of tools, and the types of their values. The library for Node has the same file. */

/** A JSON Schema (2020-12). `optional` is only for a property of `input`. */
export interface Schema {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly default?: unknown;
  readonly optional?: boolean;
  readonly enum?: readonly unknown[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
  readonly [key: string]: unknown;
}

type Simple = { string: string; integer: number; number: number; boolean: boolean; null: null };

/** The type of a schema's values, derived from its `type`, `enum`, `items` and `properties`. */
export type Value<S extends Schema> =
  S extends { enum: readonly (infer E)[] } ? E
    : S extends { type: keyof Simple } ? Simple[S['type']]
      : S extends { type: 'array'; items: infer I extends Schema } ? Value<I>[]
        : S extends { type: 'object'; properties: infer P extends Record<string, Schema> } ? { [K in keyof P]: Value<P[K]> }
          // Anything that the schema allows.
          : any;

/** The arguments of a tool. `optional` ones may be missing. */
export type Args<I> = I extends { type: 'object' } ? any
  : I extends Record<string, Schema>
    ? { [K in keyof I as I[K] extends { optional: true } ? never : K]: Value<I[K]> }
      & { [K in keyof I as I[K] extends { optional: true } ? K : never]?: Value<I[K]> }
    : Record<string, never>;
