package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Setting is where one kind of traffic goes, and options of clients for it.
type Setting struct {
	nameServers []string
	run         string
	kind        string
	topic       string
	group       string
	journal     *Journal
}

func newSetting(nameServers []string, run, kind string, journal *Journal) *Setting {
	return &Setting{nameServers, run, kind, "S-" + run + "-" + kind, "SG-" + run + "-" + kind, journal}
}

func (s *Setting) key(number int) string {
	return fmt.Sprintf("%s-%06d", s.kind, number)
}

func (s *Setting) message(number int) *primitive.Message {
	key := s.key(number)
	message := primitive.NewMessage(s.topic, []byte(key))
	return message.WithKeys([]string{key}).WithTag("T")
}

// numberOf is the number at the end of a key.
func numberOf(key string) int {
	number, err := strconv.Atoi(key[strings.LastIndexByte(key, '-')+1:])
	if err != nil {
		panic(err)
	}
	return number
}

// producerOptions allow one attempt per send, so that what is acknowledged stands at one place.
func (s *Setting) producerOptions(instance string, more ...producer.Option) []producer.Option {
	return append([]producer.Option{
		producer.WithGroupName(s.group + "-" + instance),
		producer.WithInstanceName(s.run + "-" + instance),
		producer.WithNsResolver(primitive.NewPassthroughResolver(s.nameServers)),
		producer.WithRetry(0),
	}, more...)
}

func (s *Setting) consumerOptions(name string, more ...consumer.Option) []consumer.Option {
	return append([]consumer.Option{
		consumer.WithGroupName(s.group),
		consumer.WithInstance(s.run + "-" + name),
		consumer.WithNsResolver(primitive.NewPassthroughResolver(s.nameServers)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeGoroutineNums(2),
	}, more...)
}
