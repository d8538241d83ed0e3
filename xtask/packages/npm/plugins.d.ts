/** The directory with the first-party plugins, one `.wasm` file each. */
export const directory: string
