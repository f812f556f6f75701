// How is the package typed for ESM? As for CommonJS.

export * from "./index.js";
