// The handlers of the routes: each reads its request, throws Error for what is wrong with it, and answers. Only
// api.cpp and the files of the handlers include this.
#pragma once
#include "weft/base/function_ref.h"
#include "weft/serve/api/api.h"

namespace weft::api {

void chat_completions(Context&, const http::Request&, const ExchangePointer&);
void completions(Context&, const http::Request&, const ExchangePointer&);
void responses(Context&, const http::Request&, const ExchangePointer&);
void messages(Context&, const http::Request&, const ExchangePointer&);
void count_tokens(Context&, const http::Request&, const ExchangePointer&);
void embeddings(Context&, const http::Request&, const ExchangePointer&);
void score(Context&, const http::Request&, const ExchangePointer&);
void rerank(Context&, const http::Request&, const ExchangePointer&);
void classify(Context&, const http::Request&, const ExchangePointer&);
void tokenize(Context&, const http::Request&, const ExchangePointer&);
void detokenize(Context&, const http::Request&, const ExchangePointer&);
void list_models(Context&, const http::Request&, const ExchangePointer&);
void show_model(Context&, const http::Request&, const ExchangePointer&);
void load_adapter(Context&, const http::Request&, const ExchangePointer&);
void unload_adapter(Context&, const http::Request&, const ExchangePointer&);
void show_metrics(Context&, const http::Request&, const ExchangePointer&);
void show_page(Context&, const http::Request&, const ExchangePointer&);
void show_version(Context&, const http::Request&, const ExchangePointer&);

// What a request asks of a handler: its body as JSON.
JsonDocument body_of(const http::Request& request, const ApiLimits& limits);
// Calls `read`; what is wrong with a request is the client's mistake, 400, unless an ApiError says otherwise.
void read_or_refuse(FunctionRef<void()> read);

}  // namespace weft::api
