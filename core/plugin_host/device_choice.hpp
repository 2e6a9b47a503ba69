// Which of a provider's devices a user means.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin_api.h"

namespace backplane::core {

/// "fakegpu:1" -> ("fakegpu", "1"); without a colon the second part is "".
std::pair<std::string, std::string> split_device_name(const std::string& name);

/// The device of `infos` (not empty) that a provider's name alone means, by index: the one with the highest score; of
/// those one with memory of its own before one on the host's; then the one with the most memory; then the first. It depends on
/// nothing else, so the same devices give the same one.
std::size_t best_device(const std::vector<const bp_device_info*>& infos);
/// By what it is the best of several, as the rest of a sentence: "it has the highest score, 60".
std::string why_best(const std::vector<const bp_device_info*>& infos);

/// The devices of `infos` (not empty) that `wanted` means, by index:
///   ""           the best one, see best_device
///   a number     that one
///   fastest      the one with the highest score
///   least_power  the one that draws least, as the provider says (bp.device_states)
///   most_memory  the one with the most free memory, or, where the provider does not know that, the most memory
///   name=PATTERN the first whose name fits, with '*' and '?', in upper or lower case
///   all          every one that can serve (score above 0), in order
/// Of equals the first. Throws InvalidArgument for other words, NotFound where no device fits, Unsupported where the
/// provider does not say what it is asked by.
std::vector<std::size_t> choose_devices(const bp_provider& provider, const std::string& wanted,
                                        const std::vector<const bp_device_info*>& infos);

}  // namespace backplane::core
