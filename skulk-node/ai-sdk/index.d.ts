// How is the provider for the Vercel AI SDK typed? By `@ai-sdk/provider` 4, whose types a project that uses it has.

import type { LanguageModelV3, LanguageModelV3Prompt, LanguageModelV4, LanguageModelV4Prompt } from "@ai-sdk/provider";
import type { Model } from "../lib/index.js";

/** What a language model is made with. */
export interface SkulkOptions<Messages> {
  /** What the AI SDK calls it; the model's family by default. */
  modelId?: string;
  /** Makes a text of a prompt's messages; by default their texts with empty lines between them. */
  prompt?: (messages: Messages) => string | PromiseLike<string>;
}

/**
 * A loaded model as a language model of the AI SDK: `v4`, the default, is for `ai` 7, `v3` for `ai` 6. What it cannot
 * honour, tools and JSON among it, it warns of. `providerOptions.skulk` takes options of `Model.generate`.
 */
export function skulk(
  model: Model,
  options?: SkulkOptions<LanguageModelV4Prompt> & { specificationVersion?: "v4" },
): LanguageModelV4;
export function skulk(
  model: Model,
  options: SkulkOptions<LanguageModelV3Prompt> & { specificationVersion: "v3" },
): LanguageModelV3;

/** The texts of all messages, with an empty line between them. */
export function plainPrompt(messages: LanguageModelV3Prompt | LanguageModelV4Prompt): string;
