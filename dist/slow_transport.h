#pragma once
#include <memory>

#include <tandem/dist/link.h>
#include <tandem/dist/transport.h>

namespace tandem::engine {

/// Returns a Transport whose messages are as slow as over `link`, or slower if `inner` is. Transfers of two
/// ranks have a link in each direction; all collectives of a rank share one link out and one in. The bytes of
/// messages occupy a link one after another; the latency delays each message and occupies nothing. What was
/// sent can be overwritten when its last byte has left. It moves the same bytes as `inner`, with one more
/// short message for each, which says when the message arrives; so all ranks need the same link. Times of
/// ranks on other machines are not compared: there, a message arrives one latency after this rank has seen
/// it. Throws Error if latency or bandwidth is negative or not finite.
std::unique_ptr<Transport> slow_transport(std::unique_ptr<Transport> inner, const LinkModel& link);

}  // namespace tandem::engine
