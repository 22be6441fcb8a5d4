package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// security is how to reach a listener: PEM files, and a login where there is a mechanism.
type security struct {
	Authority, Chain, Key, Mechanism, Username, Password string
}

func secured(how security) (*sarama.Config, error) {
	config := settings("")
	authority, err := os.ReadFile(how.Authority)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	config.Metadata.Retry.Max = 0 // a refusal is said at once
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: trusted}
	if how.Chain != "" {
		pair, err := tls.LoadX509KeyPair(how.Chain, how.Key)
		if err != nil {
			return nil, err
		}
		config.Net.TLS.Config.Certificates = []tls.Certificate{pair}
	}
	if how.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(how.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = how.Username, how.Password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &exchange{mechanism: how.Mechanism}
		}
	}
	return config, nil
}

// exchange is one login by SCRAM.
type exchange struct {
	*scram.ClientConversation
	mechanism string
}

func (exchange *exchange) Begin(username, password, identity string) error {
	hash := scram.SHA256
	if exchange.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	client, err := hash.NewClient(username, password, identity)
	if err != nil {
		return err
	}
	exchange.ClientConversation = client.NewConversation()
	return nil
}

// carry makes a topic, writes records and reads them in a group, or says why it is not let in.
func carry(address, topic string) (map[string]any, error) {
	var how security
	if err := json.NewDecoder(os.Stdin).Decode(&how); err != nil {
		return nil, err
	}
	config, err := secured(how)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient([]string{address}, config)
	if err != nil {
		return map[string]any{"refused": err.Error()}, nil
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	detail := sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
	if err := admin.CreateTopic(topic, &detail, false); err != nil {
		return nil, err
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, err
	}
	for number := range records {
		message := sarama.ProducerMessage{
			Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(number))}
		if _, _, err := producer.SendMessage(&message); err != nil {
			return nil, err
		}
	}
	group, err := sarama.NewConsumerGroupFromClient(topic, client)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reader := &reader{}
	if err := group.Consume(ctx, []string{topic}, reader); err != nil {
		return nil, err
	}
	offsets, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0}})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"values": reader.values, "committed": offsets.GetBlock(topic, 0).Offset}, nil
}

// reader takes every record of the one partition, and commits behind the last.
type reader struct{ values []string }

func (reader *reader) Setup(sarama.ConsumerGroupSession) error { return nil }

func (reader *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (reader *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		reader.values = append(reader.values, string(message.Value))
		session.MarkMessage(message, "")
		if len(reader.values) == records {
			session.Commit()
			return nil
		}
	}
	return nil
}
