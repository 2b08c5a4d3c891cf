// TextVectors: a request that is answered by the vectors of some texts.
#pragma once
#include <functional>
#include <vector>

#include "weft/serve/api/api.h"

namespace weft::api {

// In the order of the plan's prompts.
using TextVectors = std::vector<std::vector<float>>;

// Asks the engine for the vector of each prompt, as the model's files say (ServedModel::embedding), and answers by
// what `reply` makes of them when all are there, or by the first error. `reply` may throw ApiError; it is called on
// the engine's thread.
using ReplyOfVectors = std::function<http::Reply(const Plan& plan, TextVectors& vectors)>;
void answer_by_vectors(const ExchangePointer& exchange, Plan plan, ReplyOfVectors reply);
// The same with logits of these tokens in place of vectors, or scores of labels, of a model that scores texts.
void answer_by_logits(const ExchangePointer& exchange, Plan plan, std::vector<int32_t> weighed, ReplyOfVectors reply);

}  // namespace weft::api
