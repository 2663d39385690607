#include "heed/serve/server.h"

#include <system_error>

namespace heed::serve {

using Clock = std::chrono::steady_clock;

Server::Server(Models& models, ServerOptions options)
    : models_(models), options_(std::move(options)) {
  ServiceOptions o = options_.service;
  o.gauges = [this] { return gauges(); };
  service_ = std::make_unique<Service>(models_, std::move(o));
  if (!options_.keys.empty()) service_->shared().keys.set(read_keys(options_.keys));
  http_ = std::make_unique<HttpServer>(
      options_.http,
      [this](Request request, std::shared_ptr<Reply> reply) {
        take(std::move(request), std::move(reply));
      },
      [this](int status, const std::string& peer) {
        service_->shared().counters.answered("other", status, 0);
        if (options_.service.log)
          options_.service.log("{\"status\":" + std::to_string(status) + ",\"peer\":\"" + peer +
                               "\",\"refused\":true}");
      });
}

Server::~Server() = default;

void Server::take(Request request, std::shared_ptr<Reply> reply) {
  if (service_->quick(request)) return service_->answer(request, *reply);
  {
    const std::lock_guard lock(mutex_);
    if (std::ssize(jobs_) < options_.queue) {
      jobs_.push_back({std::move(request), std::move(reply), Clock::now()});
      // Threads are made as they are needed: most servers never need all.
      if (idle_ < std::ssize(jobs_) && std::ssize(workers_) < options_.workers) try {
          workers_.emplace_back([this] { work(); });
        } catch (const std::system_error&) {  // the system lets there be no more
        }
      if (!workers_.empty()) {
        changed_.notify_one();
        return;
      }
      request = std::move(jobs_.back().request), reply = std::move(jobs_.back().reply);
      jobs_.pop_back();
    }
  }
  service_->refused(503, request, *reply, "Too many requests wait already; try again later");
}

void Server::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [&] { return ended_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    if (job.reply->wanted()) service_->answer(job.request, *job.reply, job.since);
    job = {};  // its connection goes on
    lock.lock();
  }
}

void Server::tend() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, std::chrono::seconds(1), [&] { return ended_; })) {
    lock.unlock();
    models_.tend();
    lock.lock();
  }
}

void Server::run() {
  std::thread keeper([this] { tend(); });
  http_->run();
  std::vector<std::thread> workers;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    workers.swap(workers_);
  }
  changed_.notify_all();
  over_.notify_all();
  for (std::thread& w : workers) w.join();
  keeper.join();
}

void Server::reload() {
  const auto told = [&](const std::string& words) {
    if (options_.service.log) options_.service.log(words);
  };
  if (!options_.keys.empty()) try {
      service_->shared().keys.set(read_keys(options_.keys));
    } catch (const Error& error) {
      told(nlohmann::json{{"error", error.what()}}.dump());
    }
  models_.reload();
}

std::vector<Counters::Gauge> Server::gauges() const {
  const std::lock_guard lock(mutex_);
  return {{"heed_connections", "Open connections.", double(http_->connections())},
          {"heed_queue_requests", "Requests that wait for a thread.", double(jobs_.size())},
          {"heed_worker_threads", "Threads that translate.", double(workers_.size())}};
}

}  // namespace heed::serve
