#pragma once
#include <cstdint>

#include <tandem/core/base/json_input.h>
#include <tandem/nn/models/bert.h>
#include <tandem/nn/models/gpt2.h>
#include <tandem/nn/models/vit.h>

/// Sizes of networks in config.json, the file beside the weights of transformers. Each function throws Error
/// naming the key whose value the network cannot have.
namespace tandem::nn {

Gpt2Options gpt2_options(const engine::JsonInput& config);
BertOptions bert_options(const engine::JsonInput& config);
/// Sizes that the config lacks are those of `otherwise`.
VitOptions vit_options(const engine::JsonInput& config, const VitOptions& otherwise = {});
/// Returns whether the config is one of transformers: those say their `model_type`, others, as timm's, do
/// not.
bool is_of_transformers(const engine::JsonInput& config);
/// Returns the number of classes of a classifier.
std::int64_t class_count(const engine::JsonInput& config);
/// Returns whether the config is of a classifier, by the name of its class in transformers.
bool is_classifier(const engine::JsonInput& config);
/// Returns whether the config is of transformers' BertModel, whose files have no head.
bool lacks_head(const engine::JsonInput& config);

}  // namespace tandem::nn
