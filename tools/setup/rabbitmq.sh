# shellcheck shell=bash
# RabbitMQ for private instances of the tests.
programs rabbitmq-server:rabbitmq-server
