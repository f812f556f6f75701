// What does the package offer? The same as `index.js`, for ESM.

import skulk from "./index.js";

export const {
  CardLibrary,
  ChatStream,
  Cluster,
  EmbeddingModel,
  Generation,
  Inventory,
  Model,
  ModelCard,
  Node,
  Placement,
  PlanReport,
  Profile,
  Server,
  Session,
  SkulkError,
  Tokenizer,
  ToolChat,
  VindexReader,
  devices,
  errorKinds,
  extract,
  isGemma4Family,
  plan,
  planning,
  price,
  serve,
  verifyVindex,
  version,
} = skulk;
