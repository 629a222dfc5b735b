// Asks grpc.health.v1.Health, whose generated code Debian does not ship: the messages are one field each.
#pragma once

#include <string>

namespace baton::fakes {

enum class Health { kUnknown = 0, kServing = 1, kNotServing = 2, kUnreachable = -1 };

// Of `service`, empty: of the server as a whole.
Health HealthOf(const std::string& address, const std::string& service);

}  // namespace baton::fakes
