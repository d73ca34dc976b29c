package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Journal writes what happened, one line each, in the format of tests/checkers/history.py.
type Journal struct {
	lock sync.Mutex
	out  *bufio.Writer
}

func newJournal(out *os.File) *Journal {
	return &Journal{out: bufio.NewWriter(out)}
}

func micros() int64 {
	return time.Now().UnixMicro()
}

// sent notes a send that the broker has acknowledged; without a queue where the place says nothing to a consumer.
func (j *Journal) sent(kind, key string, began int64, queue *primitive.MessageQueue, offset int64) {
	if queue == nil {
		j.line("SENT", kind, key, began, micros(), "", -1, -1)
		return
	}
	j.line("SENT", kind, key, began, micros(), queue.BrokerName, queue.QueueId, offset)
}

// unsure notes a send whose outcome nobody knows.
func (j *Journal) unsure(kind, key string, began int64, reason any) {
	j.line("UNSURE", kind, key, began, micros(), reason)
}

func (j *Journal) got(kind, consumer, key string, began int64, queue *primitive.MessageQueue, message *primitive.MessageExt) {
	j.line("GOT", kind, key, began, micros(), queue.BrokerName, queue.QueueId, message.QueueOffset, consumer,
		message.ReconsumeTimes, queue.Topic)
}

func (j *Journal) reply(kind, key string, began int64, text any) {
	j.line("REPLY", kind, key, began, micros(), text)
}

func (j *Journal) asked(kind, key string) {
	now := micros()
	j.line("ASKED", kind, key, now, now)
}

func (j *Journal) phase(name string) {
	j.line("PHASE", name, micros())
}

func (j *Journal) trouble(kind string, failure any) {
	j.line("TROUBLE", kind, failure)
}

func (j *Journal) line(fields ...any) {
	words := make([]string, len(fields))
	for i, field := range fields {
		words[i] = fmt.Sprint(field)
		if strings.ContainsAny(words[i], "\t\r\n") {
			words[i] = strings.Join(strings.Fields(words[i]), " ")
		}
	}
	j.lock.Lock()
	defer j.lock.Unlock()
	fmt.Fprintln(j.out, strings.Join(words, "\t"))
	j.out.Flush()
}
